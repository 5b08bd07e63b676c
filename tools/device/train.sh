#!/bin/sh
# Train cells of Wu et al. 2025 on a device that is lent for minutes, in pieces: what one leaves, the next takes up.
#
#     tools/device/train.sh PACK MINUTES WHAT… [-- OPTION…]      e.g.  run.zip 9 fig2 -- --effort full --device cuda
#
# PACK is unpacked if it is there, trained on for MINUTES, and written anew. Ends with 0 when everything is trained,
# with 3 when the same command is to be run again. Cells are tested later, anywhere: unpack PACK and run
# `posbias paper wu2025 WHAT… --out FOLDER` with the same effort.
set -eu
pack=$1 minutes=$2
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
if [ -e "$pack" ]; then
    "$posbias" study unpack "$pack" --out "$folder/run" >&2
fi
code=0
# shellcheck disable=SC2086  # a word each
"$posbias" paper wu2025 $what --no-tests --budget "$minutes" --out "$folder/run" "$@" || code=$?
case $code in
    0 | 3) "$posbias" study pack "$folder/run" --out "$folder/packed.zip" >&2 && mv "$folder/packed.zip" "$pack" ;;
esac
exit $code
