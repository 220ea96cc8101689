// One OPC UA server or discovery server, as its only argument says in JSON:
//   {"port": 4840, "uri": "urn:a", "name": "A", "type": "Server", "hostname": "plc.invalid", "register": "opc.tcp://127.0.0.1:4841"}
// or, a discovery server, {"port": 4841, "discovery": true}. Prints "ready" when it answers (and is registered), and ends with
// its standard input.
"use strict";
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { OPCUAServer, RegisterServerMethod } = require("node-opcua-server");
const { OPCUACertificateManager } = require("node-opcua-certificate-manager");
const { ApplicationType } = require("node-opcua-service-endpoints");
const { OPCUADiscoveryServer } = require("node-opcua-server-discovery");

const wanted = JSON.parse(process.argv[2]);
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "opcua-"));
process.on("exit", () => fs.rmSync(folder, { recursive: true, force: true }));
process.stdin.on("end", () => process.exit(0)).resume();

async function certificates(name) {
  const manager = new OPCUACertificateManager({ rootFolder: path.join(folder, name), automaticallyAcceptUnknownCertificate: true });
  await manager.initialize();
  return manager;
}

async function discoveryServer() {
  return new OPCUADiscoveryServer({
    port: wanted.port,
    serverInfo: { applicationUri: wanted.uri || "urn:lds", applicationName: { text: wanted.name || "LDS" } },
    serverCertificateManager: await certificates("lds"),
    automaticallyAcceptUnknownCertificate: true,
    allowUnsecuredRegistration: true,
  });
}

async function server() {
  return new OPCUAServer({
    port: wanted.port,
    hostname: wanted.hostname,
    resourcePath: wanted.path || "/UA/Test",
    nodeset_filename: [],
    serverInfo: {
      applicationUri: wanted.uri,
      applicationName: { text: wanted.name },
      applicationType: ApplicationType[wanted.type || "Server"],
    },
    serverCertificateManager: await certificates("server"),
    userCertificateManager: await certificates("user"),
    registerServerMethod: wanted.register ? RegisterServerMethod.LDS : RegisterServerMethod.HIDDEN,
    discoveryServerEndpointUrl: wanted.register,
  });
}

(async () => {
  const running = wanted.discovery ? await discoveryServer() : await server();
  const registered = new Promise((resolve) => (wanted.register ? running.once("serverRegistered", resolve) : resolve()));
  await running.start();
  await registered;
  console.log("ready");
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
