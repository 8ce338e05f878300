"""Which folder may include what: the table of docs/style.md, section 2."""
import re

LEAVES = {"seccomp", "cgroups", "rootfs", "network"}

# folder: (our folders it may include, libraries it may include)
LAYERS = {
    "base": (set(), set()),
    "oci": ({"base"}, {"nlohmann"}),
    "seccomp": ({"base", "oci"}, {"libseccomp"}),
    "cgroups": ({"base", "oci"}, {"systemd"}),
    "rootfs": ({"base", "oci"}, {"libarchive", "libcurl", "libpsl", "openssl", "compression"}),
    "network": ({"base", "oci"}, {"libnl", "libnftables", "libpsl", "libidn2", "boost", "openssl", "c-ares"}),
    "files": ({"base", "oci"}, {"libarchive", "re2", "nettle"}),
    "runtime": ({"base", "oci"} | LEAVES, {"libcap"}),
    "daemon": ({"base", "oci", "files", "runtime"} | LEAVES, {"boost", "sqlite", "systemd"}),
    "tools": ({"base", "oci"}, {"boost", "cli11"}),
}
MORE_FOR_FILES = [(r"tools/hutch_oci.*", {"runtime"})]

LIBRARIES = {
    "nlohmann": r"nlohmann/", "libseccomp": r"seccomp\.h$", "libarchive": r"archive(_entry)?\.h$", "libcurl": r"curl/", "libpsl": r"libpsl\.h$", "libidn2": r"idn2\.h$",
    "openssl": r"openssl/", "compression": r"(zlib|zstd|lzma|bzlib)\.h$", "libnl": r"netlink/", "libnftables": r"nftables/",
    "boost": r"boost/", "libcap": r"sys/capability\.h$", "sqlite": r"sqlite3\.h$", "systemd": r"systemd/",
    "re2": r"re2/", "nettle": r"nettle/", "c-ares": r"ares\.h$", "cli11": r"CLI/", "googletest": r"g(test|mock)/",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def check(tree):
    for path in tree.files(".cc", ".h", under=[f"{folder}/" for folder in LAYERS]):
        folder = path.split("/")[0]
        folders, libraries = LAYERS[folder]
        for pattern, more in MORE_FOR_FILES:
            if re.fullmatch(pattern, path):
                folders = folders | more
        for number, line in enumerate(tree.lines(path), 1):
            match = INCLUDE.match(line)
            if match:
                yield from check_include(f"{path}:{number}", folder, folders, libraries, *match.groups())


def check_include(where, folder, folders, libraries, bracket, name):
    other = name.split("/")[0]
    if bracket == '"':
        if "/" not in name:
            yield f'{where}: include "{name}" by its full path'
        elif other not in LAYERS:
            yield f"{where}: {folder}/ may not include {name}"
        elif other != folder and other not in folders:
            yield f"{where}: {folder}/ may not include {other}/ ({name})"
        return
    for library, pattern in LIBRARIES.items():
        if re.match(pattern, name) and library not in libraries:
            yield f"{where}: {folder}/ may not use {library} (<{name}>)"
