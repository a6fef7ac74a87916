#!/bin/sh
# Before the package is removed, but not before an upgrade ("upgrade" on Debian, 1 on Red Hat).
set -e
if [ "$1" != upgrade ] && [ "$1" != 1 ] && [ -d /run/systemd/system ]; then
  systemctl disable --now belfry-server.service belfry-agent.service || true
fi
