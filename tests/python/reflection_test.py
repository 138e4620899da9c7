"""Calls that know nothing but an address: the services, methods and messages come from
server reflection, as grpcurl and others work.

Environment: TENURE_ADDRESS (host:port of the gateway), TENURE_TOKEN.
"""

import base64
import json
import os
import unittest

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

# The longest that any call may take, in seconds.
BOUND = 90


def as_json(text):
    """A text as JSON has bytes."""
    return base64.b64encode(text.encode()).decode()


class Reflection(unittest.TestCase):
    """Requests and answers in JSON, by the names of services and methods."""

    def setUp(self):
        self.channel = grpc.insecure_channel(os.environ["TENURE_ADDRESS"])
        self.addCleanup(self.channel.close)
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = descriptor_pool.DescriptorPool(self.database)

    def method(self, name):
        """The descriptor of a method, such as tenure.v1.JobService/GetJob."""
        service, _, method = name.partition("/")
        return self.pool.FindServiceByName(service).FindMethodByName(method)

    def call(self, name, *requests, token=None):
        """Calls a method with requests as dictionaries; a list of such answers."""
        method = self.method(name)
        make = message_factory.GetMessageClass(method.input_type)
        read = message_factory.GetMessageClass(method.output_type)
        messages = [json_format.ParseDict(request, make()) for request in requests]
        streams = ("stream" if method.client_streaming else "unary") + (
            "_stream" if method.server_streaming else "_unary"
        )
        call = getattr(self.channel, streams)(
            "/" + name,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=read.FromString,
        )
        token = os.environ["TENURE_TOKEN"] if token is None else token
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        given = iter(messages) if method.client_streaming else messages[0]
        answers = call(given, metadata=metadata, timeout=BOUND)
        if not method.server_streaming:
            answers = [answers]
        return [json_format.MessageToDict(answer) for answer in answers]


    def test_the_services_are_listed(self):
        services = set(self.database.get_services())
        expected = {
            "FileService",
            "JobService",
            "JobTypeService",
            "NotificationService",
            "QueueService",
            "WorkerService",
        }
        self.assertLessEqual({f"tenure.v1.{name}" for name in expected}, services)
        self.assertIn("grpc.health.v1.Health", services)

    def test_health(self):
        answers = self.call("grpc.health.v1.Health/Check", {}, token="")
        self.assertEqual(answers, [{"status": "SERVING"}])

    def test_upload_submit_watch_get_list_and_download(self):
        chunk = as_json("a,b\n1,2\n3,4\n")
        parts = ({"header": {"name": "small.csv"}}, {"chunk": chunk})
        (uploaded,) = self.call("tenure.v1.FileService/UploadFile", *parts)
        file_id = uploaded["file"]["fileId"]
        payload = as_json(json.dumps({"file_id": file_id}))
        job = {"jobType": "import_csv", "payload": payload, "labels": {"by": "reflection"}}
        (accepted,) = self.call("tenure.v1.JobService/SubmitJob", {"job": job})
        job_id = accepted["jobId"]
        changes = self.call("tenure.v1.JobService/WatchJob", {"jobId": job_id})
        self.assertEqual(changes[-1]["job"]["state"], "JOB_STATE_SUCCESS")
        (got,) = self.call("tenure.v1.JobService/GetJob", {"jobId": job_id})
        self.assertEqual(got["job"]["payload"], payload)
        request = {"labels": {"by": "reflection"}}
        (listed,) = self.call("tenure.v1.JobService/ListJobs", request)
        self.assertEqual([job["jobId"] for job in listed["jobs"]], [job_id])
        (part,) = self.call("tenure.v1.FileService/DownloadFile", {"fileId": file_id})
        self.assertEqual(part["chunk"], chunk)
        (answer,) = self.call("tenure.v1.JobService/CancelJob", {"jobId": job_id})
        self.assertEqual(answer["outcome"], "OUTCOME_ALREADY_ENDED")

    def test_what_is_refused(self):
        for request, token, code in (
            ({"job": {"jobType": "noop"}}, "wrong", grpc.StatusCode.UNAUTHENTICATED),
            ({"job": {"jobType": "nope"}}, None, grpc.StatusCode.INVALID_ARGUMENT),
            ({}, None, grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with self.assertRaises(grpc.RpcError) as caught:
                self.call("tenure.v1.JobService/SubmitJob", request, token=token)
            self.assertEqual(caught.exception.code(), code, request)

    def test_a_field_that_does_not_exist(self):
        with self.assertRaises(json_format.ParseError):
            self.call("tenure.v1.JobService/SubmitJob", {"job": {"nosuchfield": 1}})


if __name__ == "__main__":
    unittest.main(verbosity=2)
