// Runs one OPC UA server or discovery server. The only argument is its configuration as JSON:
//   {"port": 4840, "uri": "urn:a", "name": "A", "type": "Server", "hostname": "plc.invalid",
//    "register": "opc.tcp://127.0.0.1:4841"}
// or, for a discovery server, {"port": 4841, "discovery": true}. Prints "ready" when the server
// accepts requests and is registered. Exits when its standard input is closed.
//
// With "nodes": {"Thermometer_Temperature": {"type": "UInt32", "value": 71}} the server has these
// variables in namespace 2, http://akri.sh/test. A line of the standard input sets one:
//   {"node": "Thermometer_Temperature", "value": 72, "status": "Good"}
// With "users": {"name": "password"} it has no anonymous sessions, and prints "login NAME accepted"
// or "login NAME refused" for each attempt. Prints "session MODE POLICY" for each session that a
// client has activated.
"use strict";
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { OPCUAServer, RegisterServerMethod } = require("node-opcua-server");
const { OPCUACertificateManager } = require("node-opcua-certificate-manager");
const { MessageSecurityMode } = require("node-opcua-service-secure-channel");
const { ApplicationType } = require("node-opcua-service-endpoints");
const { OPCUADiscoveryServer } = require("node-opcua-server-discovery");
const { nodesets } = require("node-opcua-nodesets");
const { DataType, Variant, VariantArrayType } = require("node-opcua-variant");
const { StatusCodes } = require("node-opcua-status-code");
const readline = require("node:readline");

const config = JSON.parse(process.argv[2]);
const directory = fs.mkdtempSync(path.join(os.tmpdir(), "opcua-"));
process.on("exit", () => fs.rmSync(directory, { recursive: true, force: true }));
const input = readline.createInterface({ input: process.stdin }).on("close", () => process.exit(0));

async function certificates(name, acceptUnknown = true) {
  const manager = new OPCUACertificateManager({ rootFolder: path.join(directory, name), automaticallyAcceptUnknownCertificate: acceptUnknown });
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
    nodeset_filename: config.nodes ? [nodesets.standard] : [],
    certificateFile: config.certificateFile,
    privateKeyFile: config.privateKeyFile,
    allowAnonymous: !config.users,
    userManager: config.users && { isValidUser },
    serverInfo: {
      applicationUri: config.uri,
      applicationName: { text: config.name },
      applicationType: ApplicationType[config.type || "Server"],
    },
    serverCertificateManager: await certificates("server", !config.rejectUnknown),
    userCertificateManager: await certificates("user"),
    registerServerMethod: config.register ? RegisterServerMethod.LDS : RegisterServerMethod.HIDDEN,
    discoveryServerEndpointUrl: config.register,
  });
}

function isValidUser(name, password) {
  const valid = config.users[name] === password;
  console.log(`login ${name} ${valid ? "accepted" : "refused"}`);
  return valid;
}

function variant(node, value) {
  const dataType = DataType[node.type];
  return new Variant({ dataType, arrayType: Array.isArray(value) ? VariantArrayType.Array : VariantArrayType.Scalar, value });
}

function addNodes(running) {
  const space = running.engine.addressSpace;
  const namespace = space.registerNamespace("http://akri.sh/test");
  const variables = {};
  for (const [name, node] of Object.entries(config.nodes)) {
    variables[name] = namespace.addVariable({
      organizedBy: space.rootFolder.objects, browseName: name, nodeId: `s=${name}`,
      dataType: node.type, valueRank: Array.isArray(node.value) ? 1 : -1,
    });
    variables[name].setValueFromSource(variant(node, node.value), StatusCodes.Good);
  }
  input.on("line", (line) => {
    const { node, value, status } = JSON.parse(line);
    variables[node].setValueFromSource(variant(config.nodes[node], value), StatusCodes[status || "Good"]);
  });
}

(async () => {
  const running = config.discovery ? await discoveryServer() : await server();
  if (config.nodes) {
    await running.initialize();
    addNodes(running);
    running.on("session_activated", ({ channel }) => console.log(`session ${MessageSecurityMode[channel.securityMode]} ${channel.securityPolicy}`));
  }
  const registered = new Promise((resolve) => (config.register ? running.once("serverRegistered", resolve) : resolve()));
  await running.start();
  await registered;
  console.log("ready");
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
