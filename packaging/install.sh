#!/usr/bin/env bash
# Installs the command under every name by which mount(8), mkfs(8), fsck(8) and fstab look for it, and the
# udev rule that makes the links of /dev/disk/by-label and by-uuid, and the units that take snapshots (none is enabled).
#
#   cargo build --release --package persimmon-cli
#   sudo packaging/install.sh target/release/persimmon
#
# With the folder that `cargo xtask capi --release` makes as a second word, it installs the C library, too:
#
#   sudo packaging/install.sh target/release/persimmon target/release/capi
#
# And with the folder that `cargo xtask rocksdb --build` names (or CMake has built) as a third word, the RocksDB plugin and the program that
# runs others with it:
#
#   sudo packaging/install.sh target/release/persimmon target/release/capi target/release/capi/rocksdb
#
# DESTDIR is put before every path, for packages.
set -euo pipefail
binary=${1:?usage: install.sh BINARY [C LIBRARY FOLDER [PLUGIN FOLDER]]}
bin=${DESTDIR:-}/usr/bin
sbin=${DESTDIR:-}/usr/sbin
rules=${DESTDIR:-}/usr/lib/udev/rules.d
units=${DESTDIR:-}/usr/lib/systemd/system
install -D -m 755 "$binary" "$bin/persimmon"
install -d "$sbin"
for name in mkfs mount umount fsck; do
    ln -sf ../bin/persimmon "$sbin/$name.persimmon"
done
# By the types that the kernel shows: for `mount -o remount`, and for umount(8) of a mount that does not wait for the
# volume to be closed.
ln -sf ../bin/persimmon "$sbin/mount.fuseblk.persimmon"
ln -sf ../bin/persimmon "$sbin/mount.fuse.persimmon"
ln -sf ../bin/persimmon "$sbin/umount.fuse.persimmon"
install -D -m 644 -t "$rules" "$(dirname "$0")"/udev/*.rules
install -D -m 644 -t "$units" "$(dirname "$0")"/systemd/*
echo "installed persimmon in $bin, its other names in $sbin, udev rules in $rules, a timer for snapshots in $units"
if [ $# -gt 1 ]; then
    prefix=${DESTDIR:-}/usr
    install -D -m 644 -t "$prefix/include" "$2/include/persimmon.h"
    install -D -m 644 -t "$prefix/lib/pkgconfig" "$2/lib/pkgconfig/persimmon.pc"
    install -m 644 -t "$prefix/lib" "$2/lib/libpersimmon.a"
    # The file, and the two names that lead to it.
    cp -P "$2"/lib/libpersimmon.so* "$prefix/lib/"
    [ -n "${DESTDIR:-}" ] || ldconfig
    echo "installed libpersimmon in $prefix/lib"
fi
if [ $# -gt 2 ]; then
    # CMake takes the path of the library where it was built out of the plugin, and puts DESTDIR before all by itself.
    cmake --install "$3" --prefix /usr >/dev/null
    echo "installed the RocksDB plugin in $prefix/lib/persimmon, persimmon-rocksdb in $bin"
fi
