module example.com/udev

go 1.26.0
