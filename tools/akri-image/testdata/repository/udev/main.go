// Command udev is a binary with a C library for tests.
package main

// #cgo LDFLAGS: -ludev
// #include <libudev.h>
import "C"

func main() {
	if udev := C.udev_new(); udev != nil {
		C.udev_unref(udev)
		println("udev works")
	}
}
