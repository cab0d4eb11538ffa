#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""echo-aio [CERT KEY CA]: an echo on grpcio's asyncio server, for comparison. Prints its port."""
import asyncio
import sys

import grpc


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.echo)

    async def echo(self, request, context):
        return request


def slurp(path):
    with open(path, "rb") as f:
        return f.read()


async def main():
    server = grpc.aio.server(handlers=[Echo()])
    if len(sys.argv) == 4:
        cert, key, ca = map(slurp, sys.argv[1:])
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)], ca, True))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


asyncio.run(main())
