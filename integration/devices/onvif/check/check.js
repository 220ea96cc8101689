// Finds cameras by WS-Discovery, asks each for its time, its information and its network, and prints what it learnt:
//   node check.js EXPECTED USERNAME PASSWORD
'use strict';
const { Cam, Discovery } = require('onvif');

const [expected, username, password] = process.argv.slice(2);

function call(cam, method) {
  return new Promise((resolve, reject) => cam[method]((err, data) => (err ? reject(err) : resolve(data))));
}

async function ask(found) {
  const url = new URL(found.probeMatches.probeMatch.XAddrs.split(' ')[0]);
  const cam = new Cam({ hostname: url.hostname, port: url.port || 80, path: url.pathname, username, password, autoconnect: false });
  // The client takes the camera's clock from its time.
  const time = await call(cam, 'getSystemDateAndTime');
  const information = await call(cam, 'getDeviceInformation');
  const interfaces = await call(cam, 'getNetworkInterfaces');
  const network = [].concat(interfaces)[0];
  return { urn: found.probeMatches.probeMatch.endpointReference.address, time: time.getTime(), serial: information.serialNumber, mac: network.info.hwAddress };
}

Discovery.on('error', () => {}); // each datagram that it does not understand
Discovery.probe({ timeout: 3000, resolve: false }, async (_, found) => {
  try {
    const cameras = await Promise.all(found.map(ask));
    console.log(JSON.stringify(cameras));
    process.exit(cameras.length === Number(expected) ? 0 : 1);
  } catch (err) {
    console.error(err);
    process.exit(1);
  }
});
