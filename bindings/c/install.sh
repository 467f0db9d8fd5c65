#!/bin/sh
# Installs header, libraries and the file for pkg-config: install.sh PREFIX FOLDER-OF-THE-BUILD
set -eu
prefix=$1
built=$2
here=$(dirname "$0")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)
install -d "$prefix/include" "$prefix/lib/pkgconfig"
install -m 644 "$here/marram.h" "$prefix/include/marram.h"
install -m 644 "$built/libmarram_client_c.a" "$prefix/lib/libmarram.a"
install -m 755 "$built/libmarram_client_c.so" "$prefix/lib/libmarram.so.0"
ln -sf libmarram.so.0 "$prefix/lib/libmarram.so"
sed -e "s,@prefix@,$prefix,; s,@version@,$version," "$here/marram.pc.in" \
    > "$prefix/lib/pkgconfig/marram.pc"
chmod 644 "$prefix/lib/pkgconfig/marram.pc"
