"""The command `kalda dump-log`; its options are those of ``kafka-dump-log``."""

from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.option_types import Integer
from kalda.command.output import Form
from kalda.common.log_text import counted

if TYPE_CHECKING:
    from kalda.tools.dump_log.dump import DumpOptions


@command("dump-log", connects=False)
@click.argument("paths", metavar="[FILE|DIRECTORY]...", nargs=-1, type=click.Path())
@click.option("--files", metavar="FILE,...", multiple=True, help="Files to dump, as Kafka's tool takes them.")
@click.option("--print-data-log", is_flag=True, help="Print keys and values; implies --deep-iteration.")
@click.option("--deep-iteration", is_flag=True, help="Print the records of each batch.")
@click.option(
    "--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets; implies --print-data-log."
)
@click.option(
    "--transaction-log-decoder",
    is_flag=True,
    help="Decode records of __transaction_state; implies --print-data-log.",
)
@click.option("--skip-record-metadata", is_flag=True, help="Print only key and value of a record.")
@click.option(
    "--max-bytes", type=Integer(1), metavar="BYTES", help="Read this much of each .log file at most."
)
@click.option("--verify-index-only", is_flag=True, help="Check indexes without printing their entries.")
@click.option(
    "--index-sanity-check", is_flag=True, help="Check indexes as a broker does at its start, and no more."
)
def dump_log(
    tool: Tool,
    paths: tuple[str, ...],
    files: tuple[str, ...],
    print_data_log: bool,
    deep_iteration: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    skip_record_metadata: bool,
    max_bytes: int | None,
    verify_index_only: bool,
    index_sanity_check: bool,
) -> None:
    """Print segments, indexes, snapshots and checkpoints.

    A directory stands for all such files in it. The exit code is 1 if a file is damaged; each fault is one
    line on stderr with the file and the position in bytes.
    """
    from kalda.tools.dump_log.decoders import decode_offsets, decode_transactions
    from kalda.tools.dump_log.dump import DumpOptions
    from kalda.tools.dump_log.segment import SegmentOptions

    named = [*paths, *(name.strip() for each in files for name in each.split(",") if name.strip())]
    if not named:
        raise ToolUsageError("no file is named: kalda dump-log FILE..., or --files FILE,...")
    if offsets_decoder and transaction_log_decoder:
        raise ToolUsageError("--offsets-decoder and --transaction-log-decoder exclude each other")
    decoder = decode_offsets if offsets_decoder else decode_transactions if transaction_log_decoder else None
    print_data_log = print_data_log or decoder is not None
    options = DumpOptions(
        SegmentOptions(
            is_deep=deep_iteration or print_data_log,
            print_data_log=print_data_log,
            skip_record_metadata=skip_record_metadata,
            max_bytes=max_bytes,
            decoder=decoder,
        ),
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
    )
    faults = sum(_dump(tool, path, options) for path in _files(named))
    if faults:
        raise ToolError(f"{counted(faults, 'fault')} found")


def _files(named: list[str]) -> list[str]:
    from kalda.tools.dump_log.dump import files_of

    found: list[str] = []
    for path in named:
        try:
            files = files_of(path)
        except OSError as error:
            raise ToolUsageError(f"{path}: {error.strerror}") from error
        if not files:
            raise ToolError(
                f"{path}: the directory has no files to dump; name the directory of a partition (orders-0)"
            )
        found += files
    return found


def _dump(tool: Tool, path: str, options: "DumpOptions") -> int:
    """Print one file; return the number of its faults."""
    from kalda.tools.dump_log.dump import dump
    from kalda.tools.dump_log.entries import Note, Problem, entry_json, entry_text, problem_json

    output = tool.output
    is_json = output.form is Form.JSON
    if not is_json:
        output.item(None, f"Dumping {path}")
    faults = 0
    for line in dump(path, options):
        if isinstance(line, Problem):
            output.flush()  # the line on stderr then follows what it is about
            output.failure(str(line))
            faults += line.is_fault
            if is_json:
                output.item(problem_json(line), "")
        elif is_json:
            output.item(entry_json(line, path), "")
        else:
            output.item(None, line.text if isinstance(line, Note) else entry_text(line))
    return faults
