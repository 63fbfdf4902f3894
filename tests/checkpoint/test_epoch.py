"""The epoch that a snapshot stores."""

from __future__ import annotations

import pytest

from tidelake.checkpoint.epoch import EPOCH_PROPERTY, NO_EPOCH, Epoch, epoch_of, new_writer_id
from tidelake.errors import CorruptFile, UnsupportedFeature


def test_a_written_epoch_is_read_back() -> None:
    epoch = Epoch(7, 'höst:1:"x"')
    assert epoch_of({EPOCH_PROPERTY: epoch.to_text()}, "here") == epoch
    assert epoch_of({}, "here") == NO_EPOCH


def test_the_stored_form_is_fixed() -> None:
    assert Epoch(7, "host:1:ab").to_text() == '{"version":1,"number":7,"writer":"host:1:ab"}'


@pytest.mark.parametrize("text", ["", "7", "{}", '{"version":1,"number":"x","writer":"w"}', '{"version":1,"number":1}'])
def test_an_invalid_epoch_raises_an_error_that_names_its_snapshot(text: str) -> None:
    with pytest.raises(CorruptFile, match="snapshot 9"):
        epoch_of({EPOCH_PROPERTY: text}, "snapshot 9")


def test_an_unknown_version_is_not_read_as_an_old_epoch() -> None:
    with pytest.raises(UnsupportedFeature, match="which process is newer"):
        epoch_of({EPOCH_PROPERTY: '{"version":2}'}, "snapshot 9")


def test_two_writers_of_one_process_have_two_names() -> None:
    assert new_writer_id() != new_writer_id()
