package vm_test

// A gadget is a USB device that the guest's kernel emulates, with any vendor, product and serial
// number. It is plugged into a USB controller that the kernel emulates, too.

// mountGadgets ends in the directory of gadgets.
const mountGadgets = `modprobe libcomposite
mountpoint --quiet /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/usb_gadget
`

// addACM plugs in a serial adapter with the vendor and product of an Arduino Uno. The other end of
// its line is /dev/ttyGS0.
const addACM = mountGadgets + `modprobe dummy_hcd
if [ ! -d uno ]; then
  mkdir -p uno/strings/0x409 uno/configs/c.1 uno/functions/acm.0
  echo 0x2341 > uno/idVendor
  echo 0x0043 > uno/idProduct
  echo Arduino > uno/strings/0x409/manufacturer
  echo Uno > uno/strings/0x409/product
  echo ARD0007 > uno/strings/0x409/serialnumber
  ln -s $PWD/uno/functions/acm.0 uno/configs/c.1/
fi
echo dummy_udc.0 > uno/UDC`

const removeACM = `echo > /sys/kernel/config/usb_gadget/uno/UDC`

// addUVC plugs in a camera with the vendor and product of a Webcam C270. dummy_hcd has no
// isochronous endpoints, so the camera is on a controller of USB/IP (vudc), to which a process
// connects the guest's own port (vhci). The camera sends no frames.
const addUVC = mountGadgets + `modprobe --all usbip-vudc vhci-hcd
if [ ! -d camera ]; then
  mkdir -p camera/strings/0x409 camera/configs/c.1 camera/functions/uvc.0
  echo 0x046d > camera/idVendor
  echo 0x0825 > camera/idProduct
  echo Example > camera/strings/0x409/manufacturer
  echo Camera > camera/strings/0x409/product
  echo CAM0042 > camera/strings/0x409/serialnumber
  (
    cd camera/functions/uvc.0
    frame=streaming/uncompressed/u/360p
    mkdir -p $frame streaming/header/h control/header/h
    echo 640 > $frame/wWidth
    echo 360 > $frame/wHeight
    echo 460800 > $frame/dwMaxVideoFrameBufferSize
    echo 666666 > $frame/dwFrameInterval
    ln -s $PWD/streaming/uncompressed/u streaming/header/h/u
    for class in fs hs ss; do ln -s $PWD/streaming/header/h streaming/class/$class/h; done
    for class in fs ss; do ln -s $PWD/control/header/h control/class/$class/h; done
  )
  ln -s $PWD/camera/functions/uvc.0 camera/configs/c.1/
fi
echo usbip-vudc.0 > camera/UDC
cat > /run/uvc.pl <<'END'
` + answerUVC + `END
systemd-run --unit=uvc perl /run/uvc.pl /dev/$(basename /sys/devices/platform/usbip-vudc.0/gadget*/video4linux/*)`

const removeUVC = `systemctl stop uvc
echo > /sys/kernel/config/usb_gadget/camera/UDC`

// answerUVC connects the camera, and answers the control requests of the driver with the device
// node of the gadget: the ioctls VIDIOC_SUBSCRIBE_EVENT, VIDIOC_DQEVENT and UVCIOC_SEND_RESPONSE.
// The response to a probe of the streaming interface (1) is struct uvc_streaming_control. The
// camera is plugged in as long as the sockets are open.
const answerUVC = `
my ($subscribe, $dequeue, $respond, $first, $setup) = (0x4020565a, 0x80885659, 0x40405501, 0x08000000, 0x08000004);
my ($get_length, $get_info) = (0x85, 0x86);
open(my $camera, "+<", $ARGV[0]) or die "open: $!";
for my $type ($first .. $first + 5) {
  ioctl($camera, $subscribe, my $subscription = pack("Lx28", $type)) or die "subscribe: $!";
}

my ($unix, $stream, $high_speed) = (1, 1, 3);
socketpair(my $device, my $port, $unix, $stream, 0) or die "socketpair: $!";
connect_to("usbip-vudc.0/usbip_sockfd", fileno($device));
connect_to("vhci_hcd.0/attach", join(" ", 0, fileno($port), 1, $high_speed));
sub connect_to {
  open(my $file, ">", "/sys/devices/platform/$_[0]") or die "open $_[0]: $!";
  syswrite($file, $_[1]) or die "write $_[0]: $!";
}

while (ioctl($camera, $dequeue, my $event = "\0" x 136)) {
  my ($type, $request, $interface, $length) = unpack("Lx4xCx2Cx1S", $event);
  next if $type != $setup;
  my $streaming = $interface == 1;
  my $data = pack("L", 1);
  if ($request == $get_info) {
    $data = pack("C", 3);
  } elsif ($request == $get_length) {
    $data = pack("S", $streaming ? 34 : 2);
  } elsif ($streaming) {
    $data = pack("SCCLx10LL", 0, 1, 1, 666666, 460800, 1024);
  }
  ioctl($camera, $respond, my $response = pack("la60", $length < 60 ? $length : 60, $data)) or die "respond: $!";
}
die "dequeue: $!";
`
