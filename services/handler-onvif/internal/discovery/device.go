package discovery

import (
	"akri.sh/libs/handler"
	"akri.sh/services/handler-onvif/internal/cameras"
)

// maxProperty is the maximum length of a property. Akri rejects longer ones.
const maxProperty = 4096

// devices returns the devices of the cameras that match all filters.
func (s *stream) devices(found []cameras.Camera) []*handler.Device {
	var devices []*handler.Device
	for _, f := range found {
		c := s.cameras[f.UUID]
		if c == nil || c.info == nil || !s.details.MatchesAddresses(c.info.IP, c.info.MAC) {
			continue
		}
		devices = append(devices, &handler.Device{
			Id:         s.details.DeviceID(c.listed.URL, f.UUID),
			Properties: properties(c.listed, *c.info),
		})
	}
	return devices
}

// properties returns the properties with a known value. Most names are those of upstream Akri.
func properties(c cameras.Camera, i info) map[string]string {
	properties := map[string]string{
		"ONVIF_DEVICE_SERVICE_URL": c.URL,
		"ONVIF_DEVICE_UUID":        c.UUID,
	}
	for name, value := range map[string]string{
		"ONVIF_DEVICE_IP_ADDRESS":       i.IP,
		"ONVIF_DEVICE_MAC_ADDRESS":      i.MAC,
		"ONVIF_DEVICE_MANUFACTURER":     i.Manufacturer,
		"ONVIF_DEVICE_MODEL":            i.Model,
		"ONVIF_DEVICE_FIRMWARE_VERSION": i.FirmwareVersion,
		"ONVIF_DEVICE_SERIAL_NUMBER":    i.SerialNumber,
		"ONVIF_DEVICE_HARDWARE_ID":      i.HardwareID,
	} {
		if value != "" && len(value) <= maxProperty {
			properties[name] = value
		}
	}
	return properties
}
