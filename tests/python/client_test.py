"""A client that is generated from proto/, as a user of Tenure would write it.

Environment: TENURE_ADDRESS (host:port of the gateway), TENURE_TOKEN, TENURE_PROTO (the
folder proto/), TENURE_CSV (a file), TENURE_ROWS (its rows), TENURE_SCRATCH (a folder).
"""

import hashlib
import json
import os
import sys
import unittest

import grpc
import grpc_tools
from grpc_tools import protoc

# The longest that any call or watch may take, in seconds.
BOUND = 90
HERE = os.path.dirname(os.path.abspath(__file__))


def generate(folders, out):
    """Generates the code of all .proto files of the folders, and makes it importable."""
    well_known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
    arguments = ["protoc", f"-I{well_known}", f"--python_out={out}", f"--grpc_python_out={out}"]
    for folder in folders:
        arguments.append(f"-I{folder}")
        for parent, _, names in sorted(os.walk(folder)):
            arguments += [os.path.join(parent, n) for n in names if n.endswith(".proto")]
    if protoc.main(arguments) != 0:
        raise SystemExit("the code cannot be generated from proto/")
    sys.path.insert(0, out)


generate([os.environ["TENURE_PROTO"], os.path.join(HERE, "proto")], os.environ["TENURE_SCRATCH"])

from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from tenure.v1 import (  # noqa: E402
    file_service_pb2 as files_pb,
    file_service_pb2_grpc as files_grpc,
    job_service_pb2 as jobs_pb,
    job_service_pb2_grpc as jobs_grpc,
    messages_pb2 as messages,
)


def details(error):
    """The google.rpc details of a refusal, by the name of their message."""
    metadata = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    found = {}
    for detail in status.details:
        name = detail.type_url.rsplit(".", 1)[-1]
        message = getattr(error_details_pb2, name)()
        if not detail.Unpack(message):
            raise AssertionError(f"{detail.type_url} cannot be unpacked")
        found[name] = message
    return found


class Client(unittest.TestCase):
    """Each call of the main job, and what is refused."""

    def setUp(self):
        self.channel = grpc.insecure_channel(os.environ["TENURE_ADDRESS"])
        self.addCleanup(self.channel.close)
        self.jobs = jobs_grpc.JobServiceStub(self.channel)
        self.files = files_grpc.FileServiceStub(self.channel)
        self.auth = (("authorization", "Bearer " + os.environ["TENURE_TOKEN"]),)

    def call(self, method, request, **more):
        """Makes a call with the token and a deadline."""
        more.setdefault("metadata", self.auth)
        return method(request, timeout=BOUND, **more)

    def upload(self, content):
        """Uploads a file in chunks and returns its description."""
        header = files_pb.UploadFileRequest.Header(
            name="data.csv",
            content_type="text/csv",
            size_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )

        def parts():
            yield files_pb.UploadFileRequest(header=header)
            for start in range(0, len(content), 65536):
                yield files_pb.UploadFileRequest(chunk=content[start : start + 65536])

        return self.call(self.files.UploadFile, parts()).file

    def refused(self, code, reason, method, request, **more):
        """A call that must be refused; its details."""
        with self.assertRaises(grpc.RpcError) as caught:
            self.call(method, request, **more)
        error = caught.exception
        self.assertEqual(error.code(), code, error.details())
        found = details(error)
        self.assertEqual(found["ErrorInfo"].reason, reason)
        self.assertEqual(found["ErrorInfo"].domain, "tenure")
        return found

    def test_upload_submit_watch_get_list_and_download(self):
        with open(os.environ["TENURE_CSV"], "rb") as file:
            content = file.read()
        uploaded = self.upload(content)
        self.assertEqual(uploaded.size_bytes, len(content))
        self.assertEqual(uploaded.sha256, hashlib.sha256(content).hexdigest())

        payload = json.dumps({"file_id": uploaded.file_id}).encode()
        spec = jobs_pb.JobSpec(job_type="import_csv", payload=payload, labels={"by": "python"})
        spec.dedupe_key = "python"
        submit = jobs_pb.SubmitJobRequest(job=spec)
        accepted = self.call(self.jobs.SubmitJob, submit)
        self.assertFalse(accepted.duplicate)
        again = self.call(self.jobs.SubmitJob, submit)
        self.assertEqual((again.job_id, again.duplicate), (accepted.job_id, True))

        watch = jobs_pb.WatchJobRequest(job_id=accepted.job_id)
        changes = [change.job for change in self.call(self.jobs.WatchJob, watch)]
        self.assertEqual(changes[-1].state, messages.JOB_STATE_SUCCESS)
        revisions = [job.revision for job in changes]
        self.assertEqual(revisions, sorted(set(revisions)))

        job = self.call(self.jobs.GetJob, jobs_pb.GetJobRequest(job_id=accepted.job_id)).job
        self.assertEqual(job.payload, payload)
        result = json.loads(job.result)
        self.assertEqual(result["rows_accepted"], int(os.environ["TENURE_ROWS"]))
        self.assertEqual((job.progress.done, job.progress.total), (len(content), len(content)))

        listed = self.call(self.jobs.ListJobs, jobs_pb.ListJobsRequest(labels={"by": "python"}))
        self.assertEqual([job.job_id for job in listed.jobs], [accepted.job_id])

        for file_id, expected in ((uploaded.file_id, content), (result["report_file_id"], None)):
            request = files_pb.DownloadFileRequest(file_id=file_id)
            stored = b"".join(part.chunk for part in self.call(self.files.DownloadFile, request))
            if expected is None:
                self.assertEqual(json.loads(stored)["job_id"], accepted.job_id)
            else:
                self.assertEqual(stored, expected)

    def test_cancel(self):
        spec = jobs_pb.JobSpec(job_type="noop")
        spec.run_at.GetCurrentTime()
        spec.run_at.seconds += 3600
        accepted = self.call(self.jobs.SubmitJob, jobs_pb.SubmitJobRequest(job=spec))
        request = jobs_pb.CancelJobRequest(job_id=accepted.job_id, reason="a test")
        answer = self.call(self.jobs.CancelJob, request)
        self.assertEqual(answer.outcome, jobs_pb.CancelJobResponse.OUTCOME_CANCELLED)
        self.assertEqual(answer.job.state, messages.JOB_STATE_CANCELLED)

    def test_a_wrong_token(self):
        request = jobs_pb.SubmitJobRequest(job=jobs_pb.JobSpec(job_type="noop"))
        for metadata in ((), (("authorization", "Bearer wrong"),)):
            code = grpc.StatusCode.UNAUTHENTICATED
            method = self.jobs.SubmitJob
            self.refused(code, "UNAUTHENTICATED", method, request, metadata=metadata)

    def test_a_strange_field(self):
        spec = jobs_pb.JobSpec(job_type="noop", lane=42, timeout_ms=-5)
        request = jobs_pb.SubmitJobRequest(job=spec)
        code = grpc.StatusCode.INVALID_ARGUMENT
        found = self.refused(code, "INVALID_ARGUMENT", self.jobs.SubmitJob, request)
        fields = {violation.field for violation in found["BadRequest"].field_violations}
        self.assertEqual(fields, {"job.lane", "job.timeout_ms"})
        self.assertNotIn("RetryInfo", found)

    def test_a_huge_payload(self):
        code = grpc.StatusCode.INVALID_ARGUMENT
        for size in (300_000, 5_000_000):
            payload = json.dumps({"x": "y" * size}).encode()
            spec = jobs_pb.JobSpec(job_type="noop", payload=payload)
            request = jobs_pb.SubmitJobRequest(job=spec)
            self.refused(code, "PAYLOAD_TOO_LARGE", self.jobs.SubmitJob, request)

    def test_a_job_that_is_not_there(self):
        request = jobs_pb.GetJobRequest(job_id="00000000-0000-7000-8000-000000000000")
        self.refused(grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND", self.jobs.GetJob, request)


if __name__ == "__main__":
    unittest.main(verbosity=2)
