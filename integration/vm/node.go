package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"akri.sh/integration/cluster"
)

const (
	// stateSize is the size of the disk that outlives the guest. The file is sparse.
	stateSize = 8 << 30
	// The ports of a node's own devices.
	networkPort, filesPort, statePort = "rp8", "rp7", "rp6"
)

//go:embed join.sh
var joinScript []byte

// Node is a guest that is a node of a cluster. Its disk outlives the guest: PowerOff ends the guest
// like a loss of power, and PowerOn boots it with the same disk.
type Node struct {
	*Guest

	Member *cluster.Member
	image  *Image
	// files are the programs, the configuration and the images of the node, state is its disk.
	files, state *os.File
}

// StartNode starts a guest that joins the cluster. It returns before the node is ready.
func (i *Image) StartNode(ctx context.Context, c *cluster.Cluster, member *cluster.Member) (*Node, error) {
	n := &Node{Member: member, image: i.On(c.Neighbour)}
	var err error
	if n.files, err = packFiles(ctx, member); err != nil {
		return nil, err
	}
	if n.state, err = unnamedFile(); err != nil {
		return nil, errors.Join(err, n.files.Close())
	}
	if err := n.state.Truncate(stateSize); err != nil {
		return nil, errors.Join(fmt.Errorf("create disk: %w", err), n.closeFiles())
	}

	if n.Guest, err = n.image.Start(ctx); err != nil {
		return nil, errors.Join(err, n.closeFiles())
	}
	if err := n.plugIn(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// packFiles returns a disk with the files of the member.
func packFiles(ctx context.Context, member *cluster.Member) (*os.File, error) {
	environment := fmt.Sprintf("name=%s\naddress=%s\ngateway=%s\nmac=%s\nkubelet=%s\n",
		member.Name, member.IP, member.Gateway, member.MAC, member.KubeletDir)
	if err := os.WriteFile(filepath.Join(member.Dir, "node.env"), []byte(environment), 0o644); err != nil {
		return nil, fmt.Errorf("write addresses of node: %w", err)
	}
	if err := os.WriteFile(filepath.Join(member.Dir, "join.sh"), joinScript, 0o755); err != nil {
		return nil, fmt.Errorf("write script of node: %w", err)
	}

	disk, err := unnamedFile()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "mkfs.erofs", "--quiet", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), disk.Fd()), member.Dir)
	if output, err := command.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("write disk of node: %w: %s", err, output), disk.Close())
	}
	return disk, nil
}

// unnamedFile returns a file without a name, which the kernel frees with its last descriptor.
func unnamedFile() (*os.File, error) {
	file, err := os.CreateTemp("", "akri-vm-")
	if err != nil {
		return nil, fmt.Errorf("create disk: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("remove name of disk: %w", err), file.Close())
	}
	return file, nil
}

// plugIn plugs the devices of the node in. A rule of udev starts the script when the guest sees the
// disk with it, also each time that the guest boots.
func (n *Node) plugIn(ctx context.Context) error {
	if _, err := n.plugNetwork(ctx, networkPort, n.Member.Tap, n.Member.MAC); err != nil {
		return err
	}
	const driver = "virtio-blk-pci"
	if _, err := n.plugFile(ctx, Device{Driver: driver, Port: statePort, Serial: "state"}, n.state, false); err != nil {
		return err
	}
	_, err := n.plugFile(ctx, Device{Driver: driver, Port: filesPort, Serial: "node"}, n.files, true)
	return err
}

// PowerOff ends the guest like a loss of power.
func (n *Node) PowerOff() { n.Guest.Close() }

// PowerOn boots the guest after PowerOff. It returns before the node is ready.
func (n *Node) PowerOn(ctx context.Context) error {
	guest, err := n.image.Boot(ctx)
	if err != nil {
		return err
	}
	n.Guest = guest
	return n.plugIn(ctx)
}

// Close ends the guest and removes its disk.
func (n *Node) Close() error {
	n.Guest.Close()
	return n.closeFiles()
}

func (n *Node) closeFiles() error { return errors.Join(n.files.Close(), n.state.Close()) }
