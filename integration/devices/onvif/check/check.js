// Finds cameras by WS-Discovery, reads their time, information and network interfaces, and prints
// them as JSON:
//   node check.js EXPECTED USERNAME PASSWORD
'use strict';
const { Cam, Discovery } = require('onvif');

const [expected, username, password] = process.argv.slice(2);

function call(cam, method) {
  return new Promise((resolve, reject) => cam[method]((err, data) => (err ? reject(err) : resolve(data))));
}

// connect reads the clock and the service addresses of a camera, which the client requires first.
function connect(options) {
  return new Promise((resolve, reject) => {
    const cam = new Cam({ ...options, timeout: 10000, autoconnect: false });
    cam.connect((err) => (err ? reject(err) : resolve(cam)));
  });
}

async function query(found) {
  const match = found.probeMatches.probeMatch;
  const url = new URL(match.XAddrs.split(' ')[0]);
  const cam = await connect({ hostname: url.hostname, port: url.port || 80, path: url.pathname, username, password });
  const time = await call(cam, 'getSystemDateAndTime');
  const information = await call(cam, 'getDeviceInformation');
  const interfaces = await call(cam, 'getNetworkInterfaces');
  return { urn: match.endpointReference.address, time: time.getTime(), serial: information.serialNumber, mac: interfaces[0].info.hwAddress };
}

Discovery.on('error', () => {}); // reported for each datagram that the client cannot parse
Discovery.probe({ timeout: 1000, resolve: false }, async (_, found) => {
  try {
    const cameras = await Promise.all(found.map(query));
    console.log(JSON.stringify(cameras));
    process.exit(cameras.length === Number(expected) ? 0 : 1);
  } catch (err) {
    console.error(err);
    process.exit(1);
  }
});
