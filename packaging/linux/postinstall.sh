#!/bin/sh
# After installing or upgrading the package: the account of the service. Neither service is started.
set -e
if ! getent passwd belfry >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/belfry --shell /usr/sbin/nologin belfry
fi
chown root:belfry /etc/belfry /etc/belfry/server.yaml /etc/belfry/agent.yaml
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # After an upgrade: a running server may lack files that it has not loaded yet.
  systemctl try-restart belfry-server.service belfry-agent.service || true
fi
