package vm_test

// A gadget is a USB device that the guest's kernel emulates, with any vendor, product and serial
// number. It is plugged into a USB controller that the kernel emulates, too.

// mountGadgets ends in the directory of gadgets.
const mountGadgets = `modprobe dummy_hcd && modprobe libcomposite
mountpoint --quiet /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/usb_gadget
`

// addACM plugs in a serial adapter with the vendor and product of an Arduino Uno. The other end of
// its line is /dev/ttyGS0.
const addACM = mountGadgets + `if [ ! -d uno ]; then
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
