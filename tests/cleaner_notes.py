"""What a cleaner reports of the batches that it keeps."""

from kalda.records.batch import read_header


class Notes(list[tuple[int, int, int]]):
    """Last offset, size and maximum timestamp of each batch, in place of a `CleanedSegment`."""

    def note(self, last_offset: int, size: int, max_timestamp: int) -> None:
        self.append((last_offset, size, max_timestamp))

    def note_batches(self, chunk: bytes, spans: list[tuple[int, int]]) -> None:
        for at, end in spans:
            while at < end:
                header = read_header(chunk, at)
                self.note(header.last_offset, header.size, header.max_timestamp)
                at += header.size
