#!/bin/sh
# Train cells of Wu et al. 2025 on a device that is lent for minutes, in pieces: what one leaves, the next takes up.
#
#     tools/device/train.sh ARCHIVE MINUTES WHAT… [-- OPTION…]      e.g.  run.tar 9 fig2 -- --effort full --device cuda
#
# ARCHIVE is unpacked if it is there, trained on for MINUTES, and written anew. Ends with 0 when everything is
# trained, with 124 (that of `timeout`) when the same command is to be run again. Cells are tested later, anywhere:
# unpack ARCHIVE and run `posbias paper wu2025 WHAT… --out FOLDER` with the same effort.
set -eu
archive=$1 minutes=$2
shift 2
what=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    what="$what $1"
    shift
done
[ $# -eq 0 ] || shift
posbias=${POSBIAS:-posbias}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/run"
if [ -e "$archive" ]; then
    tar -xf "$archive" -C "$folder/run"
fi
code=0
# shellcheck disable=SC2086  # a word each
timeout --kill-after=60 "${minutes}m" "$posbias" paper wu2025 $what --no-tests --out "$folder/run" "$@" || code=$?
case $code in
    0 | 124) tar -cf "$folder/run.tar" -C "$folder/run" . && mv "$folder/run.tar" "$archive" ;;
esac
exit $code
