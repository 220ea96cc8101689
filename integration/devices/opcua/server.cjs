// Runs one OPC UA server or discovery server. The only argument is its configuration as JSON:
//   {"port": 4840, "uri": "urn:a", "name": "A", "type": "Server", "hostname": "plc.invalid",
//    "register": "opc.tcp://127.0.0.1:4841"}
// or, for a discovery server, {"port": 4841, "discovery": true}. Prints "ready" when the server
// accepts requests and is registered. Exits when its standard input is closed.
"use strict";
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { OPCUAServer, RegisterServerMethod } = require("node-opcua-server");
const { OPCUACertificateManager } = require("node-opcua-certificate-manager");
const { ApplicationType } = require("node-opcua-service-endpoints");
const { OPCUADiscoveryServer } = require("node-opcua-server-discovery");

const config = JSON.parse(process.argv[2]);
const directory = fs.mkdtempSync(path.join(os.tmpdir(), "opcua-"));
process.on("exit", () => fs.rmSync(directory, { recursive: true, force: true }));
process.stdin.on("end", () => process.exit(0)).resume();

async function certificates(name) {
  const manager = new OPCUACertificateManager({ rootFolder: path.join(directory, name), automaticallyAcceptUnknownCertificate: true });
  await manager.initialize();
  return manager;
}

async function discoveryServer() {
  return new OPCUADiscoveryServer({
    port: config.port,
    serverInfo: { applicationUri: config.uri || "urn:lds", applicationName: { text: config.name || "LDS" } },
    serverCertificateManager: await certificates("lds"),
    automaticallyAcceptUnknownCertificate: true,
    allowUnsecuredRegistration: true,
  });
}

async function server() {
  return new OPCUAServer({
    port: config.port,
    hostname: config.hostname,
    resourcePath: config.path || "/UA/Test",
    nodeset_filename: [],
    serverInfo: {
      applicationUri: config.uri,
      applicationName: { text: config.name },
      applicationType: ApplicationType[config.type || "Server"],
    },
    serverCertificateManager: await certificates("server"),
    userCertificateManager: await certificates("user"),
    registerServerMethod: config.register ? RegisterServerMethod.LDS : RegisterServerMethod.HIDDEN,
    discoveryServerEndpointUrl: config.register,
  });
}

(async () => {
  const running = config.discovery ? await discoveryServer() : await server();
  const registered = new Promise((resolve) => (config.register ? running.once("serverRegistered", resolve) : resolve()));
  await running.start();
  await registered;
  console.log("ready");
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
