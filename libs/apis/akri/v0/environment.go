package v0

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// environmentName is the pattern of Kubernetes for names of environment variables. In particular,
// the name `PATH=/x` would be another variable.
var environmentName = regexp.MustCompile(`^[-._a-zA-Z][-._a-zA-Z0-9]*$`)

// dangerousNames are environment variables that change which code a process runs or which servers
// it trusts.
var dangerousNames = []string{
	// Shells and what programs start.
	"BROWSER", "CDPATH", "ENV", "FPATH", "GLOBIGNORE", "HOME", "IFS", "INPUTRC", "LESSCLOSE", "LESSOPEN", "MANPAGER",
	"PAGER", "PATH", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "SHELL", "SHELLOPTS", "TERMCAP", "TERMINFO", "TERMINFO_DIRS",
	"TMPDIR", "VISUAL", "XDG_CONFIG_DIRS", "XDG_CONFIG_HOME", "XDG_DATA_DIRS", "XDG_DATA_HOME", "ZDOTDIR",
	// Language runtimes.
	"ASPNETCORE_HOSTINGSTARTUPASSEMBLIES", "CAML_LD_LIBRARY_PATH", "CATALINA_OPTS", "CLASSPATH", "ELECTRON_RUN_AS_NODE",
	"ELIXIR_ERL_OPTIONS", "GODEBUG", "GOFLAGS", "GOTOOLCHAIN", "GRADLE_OPTS", "GUILE_LOAD_PATH", "JAVA_HOME", "JAVA_OPTS",
	"JAVA_TOOL_OPTIONS", "JRE_HOME", "JVM_OPTS", "MAVEN_OPTS", "NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "NODE_PATH",
	"NODE_REPL_EXTERNAL_MODULE", "NODE_TLS_REJECT_UNAUTHORIZED", "PHPRC", "PHP_INI_SCAN_DIR", "R_ENVIRON", "R_ENVIRON_USER",
	"R_HOME", "R_LIBS", "R_LIBS_SITE", "R_LIBS_USER", "R_PROFILE", "R_PROFILE_USER", "TCLLIBPATH", "TCL_LIBRARY",
	// The C library, name resolution and servers that are trusted.
	"AWS_CA_BUNDLE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "CURL_CA_BUNDLE", "CURL_HOME", "DOCKER_CONFIG", "DOCKER_HOST",
	"GCONV_PATH", "GETCONF_DIR", "GOOGLE_APPLICATION_CREDENTIALS", "HOSTALIASES", "KUBECONFIG", "LOCALDOMAIN", "LOCPATH",
	"NIX_SSL_CERT_FILE", "NLSPATH", "REQUESTS_CA_BUNDLE", "RESOLV_HOST_CONF", "RES_OPTIONS", "SASL_PATH", "SSLKEYLOGFILE", "TZDIR",
	"WGETRC",
	// Libraries that load plugins or drivers, as brokers of cameras use them.
	"ALSA_CONFIG_DIR", "ALSA_CONFIG_PATH", "ALSA_PLUGIN_DIR", "CUDA_INJECTION32_PATH", "CUDA_INJECTION64_PATH", "FREI0R_PATH",
	"GBM_BACKENDS_PATH", "GDK_PIXBUF_MODULEDIR", "GDK_PIXBUF_MODULE_FILE", "GIO_EXTRA_MODULES", "GIO_MODULE_DIR", "GI_TYPELIB_PATH",
	"GST_REGISTRY", "GTK_IM_MODULE_FILE", "GTK_MODULES", "GTK_PATH", "HSA_TOOLS_LIB", "LADSPA_PATH", "LIBGL_DRIVERS_PATH",
	"LIBVA_DRIVERS_PATH", "LV2_PATH", "OCL_ICD_FILENAMES", "OCL_ICD_VENDORS", "QML2_IMPORT_PATH", "QML_IMPORT_PATH",
	"SANE_CONFIG_DIR", "VDPAU_DRIVER_PATH", "VK_ADD_LAYER_PATH", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LAYER_PATH",
	"__EGL_VENDOR_LIBRARY_DIRS", "__EGL_VENDOR_LIBRARY_FILENAMES", "__GLX_VENDOR_LIBRARY_NAME",
}

// dangerousPrefixes belong to the dynamic linker, the C library, language runtimes and their
// package managers, programs that run what a variable names, container runtimes and the address of
// the API server.
var dangerousPrefixes = []string{
	"ASAN_", "AWS_ENDPOINT_URL", "BASH", "COMPLUS_", "CORECLR_", "COR_", "DENO_", "DOTNET_", "DYLD_", "ERL_", "GIT_", "GLIBC_",
	"GST_PLUGIN", "JULIA_", "KRB5", "KUBERNETES_PORT", "KUBERNETES_SERVICE_", "LD_", "LSAN_", "LUA_", "MALLOC_", "MONO_", "NPM_CONFIG_",
	"NVIDIA_", "OPENSSL_", "PERL", "PIP_", "PYTHON", "QT_", "RUBY", "SSL_", "TSAN_", "UBSAN_", "_JAVA_",
}

// dangerousSuffixes belong to proxies and to the Java virtual machines of several vendors.
var dangerousSuffixes = []string{"_JAVA_OPTIONS", "_PROXY"}

// ValidateEnvironment returns why no container may get the environment variable, whatever its
// source. The error follows the name in a sentence. Names in allowed are not dangerous.
func ValidateEnvironment(name, value string, allowed []string) error {
	if err := ValidateVariable(name, value); err != nil {
		return err
	}
	if isDangerous(name) && !slices.Contains(allowed, name) {
		return errors.New("changes how programs run; allow it with --allow-properties of discovery-operator")
	}
	return nil
}

// ValidateVariable returns why there is no environment variable with the name and the value. The
// error follows the name in a sentence. A name has only printable ASCII. A value is any text of a
// device, also of several lines. Instances have it as Escape returns it.
func ValidateVariable(name, value string) error {
	switch {
	case !environmentName.MatchString(name):
		return errors.New("must be the name of an environment variable: letters, digits, '_', '-' and '.', not starting with a digit")
	case strings.ContainsRune(value, 0) || !utf8.ValidString(value):
		return errors.New("the value must be UTF-8 without NUL")
	}
	return nil
}

// isDangerous ignores the case: some programs read names in lower case, such as http_proxy.
func isDangerous(name string) bool {
	upper := strings.ToUpper(name)
	return slices.Contains(dangerousNames, upper) ||
		slices.ContainsFunc(dangerousPrefixes, func(prefix string) bool { return strings.HasPrefix(upper, prefix) }) ||
		slices.ContainsFunc(dangerousSuffixes, func(suffix string) bool { return strings.HasSuffix(upper, suffix) })
}
