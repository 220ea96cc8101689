"""A camera: GStreamer's RTSP server with a moving test picture that contains the time.

The first 16 rows of the picture are 40 squares, black for 0 and white for 1: the milliseconds since
1970 modulo 2^32, most significant bit first, and the exclusive or of their four bytes and the number
of the camera. Prints the port when it is ready, and a line for each session that begins and ends, with
the transport that the client asked for.
"""

import argparse
import time

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

SQUARE = 16

ENCODERS = {
    "h264": "x264enc tune=zerolatency speed-preset=ultrafast bitrate=1000 key-int-max={gop} ! video/x-h264,profile=main ! rtph264pay name=pay0 pt=96",
    # CABAC and the transform of 8 x 8 pixels, as most IP cameras. Only the profile High has the latter.
    "h264-high": "x264enc tune=zerolatency speed-preset=superfast bitrate=1000 key-int-max={gop} cabac=true dct8x8=true"
    " ! video/x-h264,profile=high ! rtph264pay name=pay0 pt=96",
    # Frames that are not in the order of their presentation.
    "h264-reordered": "x264enc speed-preset=ultrafast bitrate=1000 key-int-max={gop} bframes=2 b-adapt=false rc-lookahead=0 sync-lookahead=0"
    " ! video/x-h264,profile=main ! rtph264pay name=pay0 pt=96",
    "h265": "x265enc tune=zerolatency speed-preset=ultrafast bitrate=1000 key-int-max={gop} ! video/x-h265,profile=main ! rtph265pay name=pay0 pt=96",
    "h265-reordered": "x265enc speed-preset=ultrafast bitrate=1000 key-int-max={gop} option-string=bframes=2:b-adapt=0:rc-lookahead=3"
    " ! video/x-h265,profile=main ! rtph265pay name=pay0 pt=96",
    "mjpeg": "jpegenc ! rtpjpegpay name=pay0 pt=26",
    "vp8": "vp8enc deadline=1 ! rtpvp8pay name=pay0 pt=96",
}


def clock(width, number):
    """Returns the rows of the squares."""
    milliseconds = int(time.time() * 1000) & 0xFFFFFFFF
    check = number
    for shift in (0, 8, 16, 24):
        check ^= milliseconds >> shift & 0xFF
    bits = milliseconds << 8 | check
    row = b"".join((b"\xeb" if bits >> (39 - i) & 1 else b"\x10") * SQUARE for i in range(40))
    return row.ljust(width, b"\x10") * SQUARE


def picture(frame, options):
    """Returns a picture in the format I420: the clock, and a bar that moves."""
    width, height = options.width, options.height
    at = frame * 4 % (width - 32)
    row = b"\x60" * at + b"\xc8" * 32 + b"\x60" * (width - 32 - at)
    luma = clock(width, options.number) + row * (height - SQUARE)
    return luma + b"\x6e" * (width * height // 4) + b"\xa0" * (width * height // 4)


class Factory(GstRtspServer.RTSPMediaFactory):
    def __init__(self, options):
        super().__init__()
        self.options = options
        caps = f"video/x-raw,format=I420,width={options.width},height={options.height},framerate={options.rate}/1"
        encoder = ENCODERS[options.codec].format(gop=options.gop)
        self.set_launch(f"( appsrc name=source is-live=true format=time caps={caps} ! queue ! {encoder} )")
        self.set_shared(True)

    def do_configure(self, media):
        GstRtspServer.RTSPMediaFactory.do_configure(self, media)
        source = media.get_element().get_by_name("source")
        start, number = time.time(), 0

        def push(*_):
            nonlocal number
            wait = start + number / self.options.rate - time.time()
            if wait > 0:
                time.sleep(wait)
            buffer = Gst.Buffer.new_wrapped(picture(number, self.options))
            buffer.pts = number * Gst.SECOND // self.options.rate
            buffer.duration = Gst.SECOND // self.options.rate
            number += 1
            source.emit("push-buffer", buffer)

        source.connect("need-data", push)


class Sessions:
    """Prints a line when a client begins to receive video, and when it no longer does."""

    def __init__(self, server):
        self.playing = {}
        server.connect("client-connected", self.connected)

    def connected(self, _, client):
        client.connect("play-request", self.play)
        client.connect("teardown-request", self.end)
        client.connect("closed", self.end)

    def play(self, client, context):
        lower = context.sessmedia.get_transport(0).get_transport().lower_transport
        self.playing[client] = True
        print("session begins", "tcp" if lower == GstRtsp.RTSPLowerTrans.TCP else "udp", flush=True)

    def end(self, client, *_):
        if self.playing.pop(client, False):
            print("session ends", flush=True)


def authentication(options):
    """Returns the RTSPAuth of a camera with a user."""
    auth = GstRtspServer.RTSPAuth()
    token = GstRtspServer.RTSPToken()
    token.set_string(GstRtspServer.RTSP_TOKEN_MEDIA_FACTORY_ROLE, "viewer")
    if options.basic:
        auth.add_basic(GstRtspServer.RTSPAuth.make_basic(options.username, options.password), token)
    else:
        auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
        auth.add_digest(options.username, options.password, token)
    return auth


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", default="0")
    parser.add_argument("--number", type=int, default=0, help="number of the camera in its pictures, 0 to 255")
    parser.add_argument("--codec", choices=ENCODERS, default="h264")
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=360)
    parser.add_argument("--rate", type=int, default=15)
    parser.add_argument("--gop", type=int, default=30)
    parser.add_argument("--username")
    parser.add_argument("--password")
    parser.add_argument("--basic", action="store_true")
    options = parser.parse_args()

    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address(options.address)
    server.set_service(options.port)
    sessions = Sessions(server)  # noqa: F841, the server has no other reference to it
    factory = Factory(options)
    if options.username:
        server.set_auth(authentication(options))
        permissions = GstRtspServer.RTSPPermissions()
        permissions.add_permission_for_role("viewer", GstRtspServer.RTSP_PERM_MEDIA_FACTORY_ACCESS, True)
        permissions.add_permission_for_role("viewer", GstRtspServer.RTSP_PERM_MEDIA_FACTORY_CONSTRUCT, True)
        factory.set_permissions(permissions)
    server.get_mount_points().add_factory("/stream", factory)
    server.attach(None)
    print("ready", server.get_bound_port(), flush=True)
    GLib.MainLoop().run()


main()
