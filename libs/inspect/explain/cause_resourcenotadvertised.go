package explain

// ResourceNotAdvertised means that the node's kubelet does not have the resource of a device that
// the node sees now.
const ResourceNotAdvertised CauseID = "ResourceNotAdvertised"

func init() { register(rule{ResourceNotAdvertised, LinkResource, 2, resourceNotAdvertised}) }

func resourceNotAdvertised(t target, report func(Cause)) {
	for _, place := range t.places() {
		if !NodeReady(place.node) {
			continue // another cause
		}
		if link := place.advertised(); link.State == Broken {
			report(link.Causes[0])
		}
	}
}
