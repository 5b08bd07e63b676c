"""Binary files that nobody would write: each is read, or refused in a line, in bounded time and memory.

Those of ours end with a digest over their bytes, which tells all damage but what a hand did that also set the
digest right: such files are tried too, so that what reads them behind the digest is tried.
"""

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from whole_files import HUGE, READ_BY, tried

SEAL = b"\nposbias-sha256 "


@st.composite
def changes(draw):
    """What is done to a file's bytes: a function."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["flip", "put", "number", "cut", "drop", "double"]),
                st.integers(0, 2**32 - 1),
                st.binary(min_size=1, max_size=8),
                st.sampled_from(HUGE),
                st.sampled_from("<>"),
            ),
            min_size=1,
            max_size=4,
        )
    )
    early = draw(st.booleans())

    def change(content):
        content = bytearray(content)
        for what, place, put, number, order in steps:
            # headers lie at the beginning, and are what libraries stumble over
            at = place % max(1, min(len(content), 4096) if early else len(content))
            if what == "flip" and content:
                content[at] ^= 1 << place % 8
            elif what == "put":
                content[at : at + len(put)] = put
            elif what == "number":
                content[at : at + 8] = struct.pack(f"{order}Q", number)
            elif what == "cut":
                del content[at:]
            elif what == "drop":
                del content[at : at + len(put)]
            elif what == "double":
                content[at:at] = content[at : at + 64]
        return bytes(content)

    return change


# a file of HDF5 is opened in a process more, which takes seconds
_SLOW = ("measurement.nc", "retrieval.nc")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in _SLOW else ()) for name in READ_BY]
)
@given(change=changes(), kind=st.integers(0, 6), seal=st.sampled_from(["old", "new", "none"]))
def test_a_file_with_bytes_changed(reader, whole, name, change, kind, seal):
    held, kind = whole[name], READ_BY[name][kind % len(READ_BY[name])]
    by_hand = seal != "old" and SEAL in held
    content = change(held[: held.rindex(SEAL)] if by_hand else held)
    if by_hand and seal == "new":
        content += SEAL + hashlib.sha256(content).hexdigest().encode()
    tried(reader, whole, name, content, kind, by_hand=by_hand)
