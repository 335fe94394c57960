#!/bin/sh
# Entry point of the sandbox image, for whoever runs it by hand. The Docker engine does not use it: there the box's first
# process is Ringfence's own helper, which is mounted into the container.
set -eu

if [ "$(id -u)" = 0 ]; then
    echo 'ringfence-entrypoint: refusing to run as root (rule: non-root user); start it with --user 1000:1000' >&2
    exit 125
fi

# What a command writes is for itself alone.
umask 077

if [ $# = 0 ]; then
    set -- bash
fi
exec "$@"
