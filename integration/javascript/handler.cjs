// A Discovery Handler in JavaScript that uses only the protobuf file of Akri:
//   node handler.cjs DISCOVERY.PROTO NAME REGISTRATION_SOCKET ENDPOINT DEVICE...
// ENDPOINT is the path of a socket, or HOST:PORT. It prints "registered", and "discover DETAILS"
// for each Discover request. Without DEVICE it sends no list. It exits at the end of its standard input.
"use strict";
const fs = require("node:fs");
const grpc = require("@grpc/grpc-js");
const { loadSync } = require("@grpc/proto-loader");

const [proto, name, registrar, endpoint, ...devices] = process.argv.slice(2);
const { v0 } = grpc.loadPackageDefinition(loadSync(proto, { keepCase: true, enums: String, defaults: true }));
const uds = endpoint.startsWith("/");
if (uds) fs.rmSync(endpoint, { force: true }); // of an earlier process
process.stdin.on("end", () => process.exit(0)).resume();

function discover(call) {
  console.log("discover " + call.request.discovery_details);
  if (devices.length > 0) call.write({ devices: devices.map((id) => ({ id, properties: { JS_DEVICE: id } })) });
  call.on("cancelled", () => call.end());
}

const server = new grpc.Server();
server.addService(v0.DiscoveryHandler.service, { Discover: discover });
server.bindAsync(uds ? "unix:" + endpoint : endpoint, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  const client = new v0.Registration("unix:" + registrar, grpc.credentials.createInsecure());
  const request = { name, endpoint: uds ? endpoint : "http://" + endpoint, endpoint_type: uds ? "UDS" : "NETWORK", shared: true };
  client.RegisterDiscoveryHandler(request, (error) => {
    if (error) throw error;
    console.log("registered");
  });
});
