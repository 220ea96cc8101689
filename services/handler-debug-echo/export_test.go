package debugecho

// DevicesOf is what details ask for.
var DevicesOf = devicesOf
