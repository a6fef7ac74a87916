#!/bin/sh
# Makes belfry_*.deb and belfry-*.rpm for this machine's processor in the folder given (default: the current
# one). Run it in a checkout after `npm ci`. It needs nFPM (https://nfpm.goreleaser.com).
set -eu
target=$(realpath "${1:-.}")
cd "$(dirname "$0")/../.."
TREE=$(mktemp -d)
trap 'rm -rf "$TREE"' EXIT
npm pack --silent --pack-destination "$TREE" >/dev/null
npm install --silent --global --prefix "$TREE" --no-audit --no-fund "$TREE"/belfry-*.tgz
# Of the Node.js package only the program is needed.
find "$TREE"/lib/node_modules/belfry/node_modules -path '*/node-*/*' -type d \( -name include -o -name share \) -prune \
  -exec rm -rf {} +
for shell in bash zsh fish; do node bin/belfry.js completion "$shell" > "$TREE/completion.$shell"; done
VERSION=$(node -p 'require("./package.json").version')
case $(uname -m) in aarch64 | arm64) ARCH=arm64 ;; *) ARCH=amd64 ;; esac
export TREE VERSION ARCH
for format in deb rpm; do nfpm package --config packaging/linux/nfpm.yaml --packager "$format" --target "$target"; done
