#!/bin/sh
# Makes the files in secrets/ that compose.yaml names. It changes nothing that exists. Needs root for one file:
# only the server may read the key of the secrets.
set -eu
cd "$(dirname "$0")"
mkdir -m 0700 secrets
random() { head -c "$1" /dev/urandom; }
password=$(random 24 | od -An -v -tx1 | tr -d ' \n')
random 24 | od -An -v -tx1 | tr -d ' \n' > secrets/token
printf %s "$password" > secrets/database-password
echo "store: postgres://belfry:$password@database/belfry" > secrets/server.yaml
: > secrets/agent-token
# The containers read these; the directory keeps other users out.
chmod 0644 secrets/*
random 32 > secrets/secret-key
chmod 0600 secrets/secret-key
# The account of the image.
if [ "$(id -u)" = 0 ]; then chown 10001 secrets/secret-key; else sudo chown 10001 secrets/secret-key; fi
