"""The faults of a pipeline file, as its commands print them."""

import io
import json

from kalda.pipelines.cli.arguments import file_error
from kalda.pipelines.spec.errors import Fault, PipelineFileError
from kalda.pipelines.spec.model import Place
from kalda.tools.framework.command import Tool
from kalda.tools.framework.output import Form, Output


def test_json_has_the_faults_of_a_file() -> None:
    """An editor or a program shows each at its place, without parsing lines for people."""
    stdout, stderr = io.StringIO(), io.StringIO()
    faults = [Fault(Place("p.yml", line, 3), f"fault {line}") for line in (1, 2)]
    error = file_error(Tool(Output(Form.JSON, stdout, stderr), {}), PipelineFileError(faults))

    assert {
        "faults": [
            {"file": "p.yml", "line": line, "column": 3, "message": f"fault {line}"} for line in (1, 2)
        ]
    } == json.loads(stdout.getvalue())
    assert ("kalda: p.yml:1:3: fault 1\n", "p.yml:2:3: fault 2") == (stderr.getvalue(), str(error))
