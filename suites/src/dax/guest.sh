#!/bin/busybox sh
# The first and only program of the machine with emulated memory: `task` is a word of the kernel's
# command line. Each image has a line of its own in what is done and said:
#
#   dax      a file on ext4 with DAX, which takes MAP_SYNC
#   epoch    another one, mounted with `durable=epoch`
#   device   a DAX device
#   virtio   a file on ext4 with DAX on a virtio-pmem device, which has no MAP_SYNC
#
# SAID IMAGE N means: all calls of the step N have returned (and, for `virtio`, an fsync after them).

/bin/busybox mkdir -p /bin /proc /sys /dev /tmp /run /var/log /pmem /plain
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
for module in /modules/*; do
    insmod "$module" || echo "FAILED insmod $module"
done

DIRECT=pmem0
PLAIN=pmem2
DEVICE=/dev/dax1.0
IMAGES="dax epoch device virtio"

image() {
    case $1 in
    device) echo $DEVICE ;;
    virtio) echo /plain/image ;;
    *) echo "/pmem/$1" ;;
    esac
}

# What must succeed; its last line is printed with a name.
must() {
    name=$1
    shift
    if "$@" > /tmp/out 2>&1; then
        echo "$name $(tail -n 1 /tmp/out)"
    else
        echo "FAILED $name: $(cat /tmp/out)"
    fi
}

# What must be refused, with its reason.
refused() {
    name=$1
    shift
    if "$@" > /tmp/out 2>&1; then
        echo "FAILED $name: was not refused"
    else
        echo "REFUSED $name $(head -n 1 /tmp/out)"
    fi
}

# Puts what the memory is into the mode in which it is used, once.
prepare() {
    must fsdax ndctl create-namespace -f -e namespace0.0 -m fsdax -M mem
    must devdax ndctl create-namespace -f -e namespace1.0 -m devdax -M mem
    for device in $DIRECT $PLAIN; do
        must ext4 mkfs.ext4 -q -b 4096 /dev/$device
    done
}

attach() {
    mount -o dax=always /dev/$DIRECT /pmem || echo "FAILED mount of /dev/$DIRECT"
    mount -o dax=always /dev/$PLAIN /plain || echo "FAILED mount of /dev/$PLAIN"
}

create() {
    for image in $IMAGES; do
        size="--size 64M"
        if [ $image = device ]; then size=; fi
        must "CREATED $image" marram create --home pmem "$(image $image)" $size
    done
    refused dax-checkpoint marram mount -o durable=checkpoint /pmem/dax /tmp
    refused device-checkpoint marram mount -o durable=checkpoint $DEVICE /tmp
    refused virtio-each marram mount -o durable=each /plain/image /tmp
    refused device-again marram create --home pmem $DEVICE
}

mount_all() {
    for image in $IMAGES; do
        options="-o durable=each"
        case $image in
        epoch) options="-o durable=epoch" ;;
        virtio) options="-o durable=checkpoint" ;;
        esac
        mkdir -p /tree/$image
        must "MOUNTED $image" marram mount $options "$(image $image)" /tree/$image
    done
}

# One step: a file is made, written, renamed, linked, and the link is removed.
step() {
    echo "content $1" > new && mv new "kept$1" && ln "kept$1" other && rm other
}

# Steps from the one after the last that is there, until the machine is gone.
load() {
    cd /tree/$1 || return
    number=$(ls | wc -l)
    while step $((number + 1)); do
        number=$((number + 1))
        if [ $1 = virtio ]; then
            [ $((number % 20)) = 0 ] || continue
            # The kernel does not tell a daemon of `syncfs`, but of an `fsync`.
            sync "kept$number" || break
        fi
        echo "SAID $1 $number"
    done
    echo "FAILED load of $1 after $number"
}

# What is there of the steps up to a number: each whole, and nothing after the next one.
judge() {
    cd /tree/$1 || return
    lost=
    number=1
    while [ $number -le $2 ]; do
        [ "$(cat kept$number 2>/dev/null)" = "content $number" ] || lost="$lost $number"
        number=$((number + 1))
    done
    while [ -f kept$number ]; do
        [ "$(cat kept$number)" = "content $number" ] || lost="$lost $number"
        number=$((number + 1))
    done
    # What the running step has left is made whole or taken away by hand.
    rm -f new other
    strange=$(ls | grep -c -v '^kept')
    echo "JUDGED $1 $((number - 1)) lost:$lost strange:$strange files:$(ls | wc -l)"
    cd /
}

case $task in
first)
    prepare
    attach
    create
    mount_all
    ;;
*)
    attach
    for image in $IMAGES; do
        must "CHECKED $image" marram check "$(image $image)"
    done
    mount_all
    judge dax "$said_dax"
    judge epoch "$said_epoch"
    judge device "$said_device"
    judge virtio "$said_virtio"
    ;;
esac
if [ "$task" = last ]; then
    for image in $IMAGES; do
        must "UNMOUNTED $image" marram unmount /tree/$image
        must "CHECKED $image" marram check "$(image $image)"
    done
    umount /pmem /plain
    echo DONE
    poweroff -f
fi
for image in $IMAGES; do
    load $image &
done
wait
