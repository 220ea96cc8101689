"""Calls GetFrame of a camera broker, with the code that protoc generates from camera.proto.

Prints the name of the camera and a line break, and the frame, a JPEG image. Exits with the status
of the call if it fails.
"""

import argparse
import pathlib
import sys

import grpc

import camera_pb2
import camera_pb2_grpc


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address", help="such as onvif-video-svc.default.svc:443")
    parser.add_argument("--ca", type=pathlib.Path, required=True, help="file with the certificate of the broker")
    parser.add_argument("--name", help="name in the certificate, if it is not that in the address")
    parser.add_argument("--token", required=True)
    options = parser.parse_args()

    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(options.ca.read_bytes()), grpc.access_token_call_credentials(options.token)
    )
    arguments = [("grpc.ssl_target_name_override", options.name)] if options.name else []
    with grpc.secure_channel(options.address, credentials, arguments) as channel:
        stub = camera_pb2_grpc.CameraStub(channel)
        try:
            reply = stub.GetFrame(camera_pb2.NotifyRequest(), timeout=30, wait_for_ready=True)
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")
    sys.stdout.buffer.write(reply.camera.encode() + b"\n" + reply.frame)


main()
