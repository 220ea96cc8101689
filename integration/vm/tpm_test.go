package vm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// addTPM adds a TPM 2.0 whose commands a process answers: the ioctl VTPM_PROXY_IOC_NEW_DEV of
// linux/vtpm_proxy.h. It has the commands that the driver needs, and GetRandom.
const addTPM = `modprobe tpm_vtpm_proxy
cat > /run/tpm.pl <<'END'
` + answerTPM + `END
systemd-run --unit=tpm perl /run/tpm.pl`

const removeTPM = `systemctl stop tpm`

const answerTPM = `
my ($self_test, $get_capability, $get_random, $set_locality) = (0x143, 0x17a, 0x17b, 0x20001000);
my ($commands, $properties, $pcrs) = (2, 6, 5);
open(my $proxy, "+<", "/dev/vtpmx") or die "open: $!";
my $device = pack("L5", 1);
ioctl($proxy, 0xc014a100, $device) or die "new device: $!";
open(my $tpm, "+<&=", (unpack("L5", $device))[2]) or die "open: $!";
while (sysread($tpm, my $command, 4096)) {
  my ($tag, $size, $code, $capability, $property, $count) = unpack("nNNNNN", $command . "\0" x 12);
  my ($result, $body) = (0, "");
  if ($code == $get_capability && $capability == $properties) {
    $body = pack("CNNNN", 0, $properties, 1, $property, 3);
  } elsif ($code == $get_capability && $capability == $commands) {
    $body = pack("CNNN3", 0, $commands, 3, $self_test, $get_capability, $get_random);
  } elsif ($code == $get_capability && $capability == $pcrs) {
    $body = pack("CNNnCa3", 0, $pcrs, 1, 0x000b, 3, "\xff\xff\xff");
  } elsif ($code == $get_random) {
    my $bytes = unpack("n", substr($command, 10, 2));
    $body = pack("n", $bytes) . "\x5a" x $bytes;
  } elsif ($code != $self_test && $code != $set_locality) {
    $result = 0x143; # TPM_RC_COMMAND_CODE
  }
  syswrite($tpm, pack("nNN", 0x8001, 10 + length($body), $result) . $body);
}
`

// readRandom sends the command GetRandom with four bytes.
func readRandom(t *testing.T, at place, _ *pluggedDevice) {
	t.Helper()
	output := at.run(t, `perl -e '
open(my $tpm, "+<", $ARGV[0]) or die "open: $!";
syswrite($tpm, pack("nNNn", 0x8001, 12, 0x17b, 4)) == 12 or die "write: $!";
sysread($tpm, my $response, 4096) or die "read: $!";
my ($tag, $size, $result, $length, $bytes) = unpack("nNNna*", $response);
printf("%d %d %s", $result, $length, unpack("H*", $bytes));' $UDEV_DEVNODE`)
	require.Equal(t, "0 4 5a5a5a5a", output)
}
