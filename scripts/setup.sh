# Sourced by the scripts beside it. `set_up EXTRAS GROUP...` makes this checkout ready to run and leaves in VENV the folder
# of its virtual environment:
#   1. Debian packages of the groups (through sudo for an ordinary user, where sudo is to be had),
#   2. a virtual environment made by Debian's python3,
#   3. this package, with what it needs from PyPI, in that environment,
#   4. the packet loop as machine code; where that cannot be made, the interpreter runs the same source.
# A stamp in the environment says what it was made from; while that holds, a start does none of this.
#
#   FABRICLAB_VENV     folder of the environment; by default .venv in the checkout, or the user's cache where that is not theirs
#   FABRICLAB_PYTHON   interpreter, 3.11 or later; by default /usr/bin/python3
#
# shellcheck shell=bash disable=SC2034  # the tables are read by name

# Package, what proves that it is there (a command, a file or a check below), what it is for.
PACKAGES_run='
python3       @python                         the language of all this
python3-venv  @venv                           the virtual environment
mininet       mnexec                          network namespaces: every run, on either clock
iproute2      ip                              looking into a fabric with ip and tc
iputils-ping  ping                            ping inside a fabric
ethtool       ethtool                         looking at the offloads of an interface
clang         clang                           the program that marks and counts at each port
libbpf-dev    /usr/include/bpf/bpf_helpers.h  headers of that program, and the library that loads it
gcc           gcc                             compiling the packet loop: half the time a packet
libc6-dev     /usr/include/stdio.h            compiling the packet loop
python3-dev   @headers                        compiling the packet loop
'
PACKAGES_kernel='
linux-source-6.12  /usr/src/linux-source-6.12.tar.xz  source of the virtual clock kernel
gcc                gcc                                compiling that kernel
libc6-dev          /usr/include/stdio.h               compiling that kernel
make               make                               compiling that kernel
bc                 bc                                 compiling that kernel
bison              bison                              compiling that kernel
flex               flex                               compiling that kernel
binutils           ld                                 linking that kernel
libelf-dev         /usr/include/libelf.h              compiling that kernel
zlib1g-dev         /usr/include/zlib.h                compiling that kernel
dwarves            pahole                             type information in that kernel, which the ports read
patch              patch                              our changes to its source
tar                tar                                unpacking its source
xz-utils           xz                                 unpacking its source
'
PACKAGES_test='
tshark             tshark                           tests: another program reads our packets
chromium           chromium                         tests: a browser opens the report page
chromium-driver    chromedriver                     tests: driving that browser
iperf3             iperf3                           tests: a program of others on a fabric
bpftool            bpftool                          tests: reading the map of a BPF program in the guest
nftables           nft                              tests: a filter that nobody told of
openmpi-bin        mpirun                           tests: an MPI program on a fabric
libopenmpi-dev     mpicc                            tests: compiling that program
libibverbs-dev     /usr/include/infiniband/verbs.h  tests: compiling a program on verbs, the peer of our packets on Soft-RoCE
ibverbs-providers  /etc/libibverbs.d/rxe.driver     tests: the part of that library for Soft-RoCE
'

say() { printf '%s\n' "$*" >&2; }

set_up() {
  EXTRAS=$1
  shift
  GROUPS_WANTED=("$@")
  ROOT=$(cd -P -- "${BASH_SOURCE[0]%/*}/.." && pwd)
  case :$PATH: in
    *:/usr/sbin:*) ;;
    *) export PATH=$PATH:/usr/sbin:/sbin ;; # an ordinary user's often lacks them
  esac
  HASH=$({ printf '%s\n' "$ROOT" && cat "$ROOT/pyproject.toml" "$ROOT/scripts/setup.sh"; } | sha256sum)
  # What an ordinary user could not install is not tried again at each start; at root's next start it is.
  if _find_ready && [[ ${GROUPS_WANTED[*]} == run && (-z $LACKING || $EUID != 0) ]]; then return; fi
  _find_missing
  if [[ -n $VENV && ${#MISSING[@]} == 0 && -z $LACKING ]]; then return; fi

  LOG=$(_log_file)
  _lock
  _find_ready || true # another start may just have finished the work
  _find_missing
  local begin=$SECONDS
  STEP=0
  STEPS=$((${#MISSING[@]} ? 1 : 0))
  [[ -n $VENV ]] || STEPS=$((STEPS + 4))
  if ((${#MISSING[@]})); then _packages; fi
  LACKING=${MISSING[*]}
  if [[ -z $VENV ]]; then _environment; fi
  [[ ! -w $VENV ]] || _stamp
  exec 9<&-
  if [[ -n $LACKING ]]; then
    say "ready after $((SECONDS - begin)) s, without the packages above"
  elif ((STEP)); then
    say "set up in $((SECONDS - begin)) s; the next start does none of this"
  fi
}

# --- what is there ------------------------------------------------------------------------------------------------------

_cache() { printf '%s/fabriclab' "${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}"; }
_key() { printf '%.12s' "$(printf '%s' "$ROOT" | sha256sum)"; }

# Sets VENV to an environment made from this checkout as it is, LACKING to the packages it has to do without.
_find_ready() {
  VENV='' LACKING=''
  if [[ -n ${FABRICLAB_VENV:-} ]]; then
    _ready "$FABRICLAB_VENV"
  else
    _ready "$ROOT/.venv" || _ready "$(_cache)/venv-$(_key)"
  fi
}

_ready() {
  local stamp=()
  [[ -r $1/.fabriclab ]] || return 1
  mapfile -t stamp <"$1/.fabriclab"
  [[ ${stamp[0]:-} == "$HASH" && $1/bin/python -ef ${stamp[1]:-} ]] || return 1
  [[ -z $EXTRAS || ${stamp[2]:-} == "$EXTRAS" ]] || return 1
  VENV=$1 EXTRAS=${EXTRAS:-${stamp[2]:-}} LACKING=${stamp[3]:-}
}

_stamp() {
  printf '%s\n' "$HASH" "$(readlink -f "$VENV/bin/python")" "$EXTRAS" "$LACKING" >"$VENV/.fabriclab.$$"
  mv -f "$VENV/.fabriclab.$$" "$VENV/.fabriclab"
}

# Sets PYTHON to an interpreter that is new enough.
_find_python() {
  local known=(/usr/bin/python3 /usr/bin/python3.1{4,3,2,1})
  if [[ -n ${FABRICLAB_PYTHON:-} ]]; then known=("$FABRICLAB_PYTHON"); fi
  for PYTHON in "${known[@]}"; do
    if "$PYTHON" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then return 0; fi
  done
  return 1
}

# Sets MISSING to the packages of the wanted groups that are not there.
_find_missing() {
  local group table name proof
  MISSING=()
  for group in "${GROUPS_WANTED[@]}"; do
    table=PACKAGES_$group
    while read -r name proof _; do
      case $proof in
        '') continue ;;
        @python) type -P "${FABRICLAB_PYTHON:-/usr/bin/python3}" >/dev/null && continue ;;
        @headers) _find_python && _headers && continue ;;
        @venv) _find_python && "$PYTHON" -I -c 'import ensurepip, venv' 2>/dev/null && continue ;;
        /*) [[ -e $proof ]] && continue ;;
        *) type -P "$proof" >/dev/null && continue ;;
      esac
      MISSING+=("$name")
    done <<<"${!table}"
  done
}

# Whether extensions of PYTHON can be compiled.
_headers() {
  "$PYTHON" -I -c 'import os, sys, sysconfig; sys.exit(not os.path.isfile(sysconfig.get_paths()["include"] + "/Python.h"))'
}

# --- the steps ----------------------------------------------------------------------------------------------------------

_log_file() {
  local folder
  folder=$(_cache)
  if mkdir -p "$folder" 2>/dev/null && : 2>/dev/null >"$folder/setup-$(_key).log"; then
    printf '%s' "$folder/setup-$(_key).log"
  else
    mktemp --suffix=.log "${TMPDIR:-/tmp}/fabriclab-setup-XXXXXX"
  fi
}

# Several first starts at once: one works, the others wait. The lock is on the checkout's folder, so that it needs no file.
_lock() {
  local code=0
  exec 9<"$ROOT"
  flock -n -E 99 9 || code=$?
  if ((code == 99)); then
    say 'another start is setting this checkout up; waiting for it ...'
    flock 9
  elif ((code)); then
    say 'note: this file system has no locks; do not start a second set-up beside this one'
  fi
}

# _step TITLE COMMAND...: runs it with its output in the log and a line of progress; ends the script where it fails.
_step() {
  local title=$1 begin=$SECONDS code=0 ticker=''
  shift
  STEP=$((STEP + 1))
  title="[$STEP/$STEPS] $title"
  printf '\n%s: %s\n' "$title" "$*" >>"$LOG"
  if [[ -t 2 ]]; then
    _ticker "$title" 9<&- &
    ticker=$!
    # shellcheck disable=SC2064  # this ticker, now
    trap "kill $ticker 2>/dev/null || true; say; say 'fabriclab: set-up interrupted; the next start goes on with it'; exit 130" INT TERM
  else
    say "$title ..."
  fi
  "$@" >>"$LOG" 2>&1 </dev/null 9<&- || code=$?
  if [[ -n $ticker ]]; then
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    trap - INT TERM
    printf '\r\033[K' >&2
  fi
  if ((code)); then _failed "$title" "exit code $code"; fi
  say "$title: $((SECONDS - begin)) s"
}

_ticker() {
  local title=$1 begin=$SECONDS last room
  while true; do
    last=$(tail -c 400 "$LOG" | tr '\r' '\n' | tr -cd '[:print:]\n' | grep -v '^$\|^\[' | tail -n 1) || last=''
    room=$(($(tput cols 2>/dev/null || echo 80) - ${#title} - 10))
    printf '\r\033[K%s %3d s  %.*s' "$title" $((SECONDS - begin)) $((room > 0 ? room : 0)) "$last" >&2
    sleep 0.5
  done
}

_failed() {
  say "error: set-up failed at step $1: $2"
  say "  where: $LOG"
  grep . "$LOG" | tail -n 15 | sed 's/^/    | /' >&2 || true
  say "  to do: ${3:-mend that and run the same command again; it goes on from this step}"
  exit 1
}

# Installs MISSING; what cannot be installed stays in it. Only what the environment itself needs ends the script.
_packages() {
  local how=() title="Debian packages: ${MISSING[*]}"
  if ! type -P apt-get >/dev/null; then
    _without 'this machine has no apt-get'
  elif ((EUID == 0)); then
    how=(env)
  elif sudo -n true 2>/dev/null; then
    how=(sudo -n)
  elif [[ -t 0 && -t 2 && ${CI:-} != true ]] && type -P sudo >/dev/null; then
    say "Debian packages are missing, and sudo may ask for your password to install them: ${MISSING[*]}"
    if sudo -v; then how=(sudo -n); else _without 'sudo did not let this user install packages'; fi
  else
    _without 'this user may not install packages'
  fi
  if ((${#how[@]})); then
    _step "$title" _install "${how[@]}"
    _find_missing
  fi
  case " ${MISSING[*]} " in
    *' python3 '* | *' python3-venv '*) _failed "[$STEP/$STEPS] $title" 'python3 with its module venv is missing' \
      'have the packages above installed, then run the same command again' ;;
  esac
}

_install() {
  local apt=("$@" env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=600)
  "$@" dpkg --configure -a && # an installation that was cut short
    { "${apt[@]}" update || echo 'the package lists are as old as they are'; } &&
    "${apt[@]}" install --no-install-recommends "${MISSING[@]}"
}

_without() {
  local table name proof purpose
  STEP=$((STEP + 1))
  say "[$STEP/$STEPS] $1; missing are"
  for table in PACKAGES_run PACKAGES_kernel PACKAGES_test; do
    while read -r name proof purpose; do
      if [[ -n $name && " ${MISSING[*]} " == *" $name "* ]]; then say "$(printf '    %-18s %s' "$name" "$purpose")"; fi
    done <<<"${!table}"
  done
  say "  to do: sudo apt-get install --no-install-recommends ${MISSING[*]}"
  say '  What does not need them works without them; fabriclab doctor tells.'
}

# Makes the environment and installs the package into it.
_environment() {
  local old=() source=$ROOT
  _find_python || _failed "[$((STEP + 1))/$STEPS] virtual environment" "no Python 3.11 or later: ${FABRICLAB_PYTHON:-/usr/bin/python3}" \
    'use Debian 12 or later, or name an interpreter in FABRICLAB_PYTHON'
  VENV=$(_place)
  if [[ -r $VENV/.fabriclab ]]; then mapfile -t old <"$VENV/.fabriclab"; fi
  EXTRAS=${EXTRAS:-${old[2]:-}}
  _step "virtual environment in $VENV" _make_venv
  if [[ $VENV != "$ROOT/.venv" ]]; then source=$VENV/checkout; fi
  _step 'fabriclab and the PyPI packages it needs' _make_package "$source"
  _step 'a first start' "$VENV/bin/fabriclab" --version
  _step 'the packet loop as machine code' _native
  # Root's set-up in a user's checkout stays the user's.
  if ((EUID == 0)) && [[ $source == "$ROOT" && ! -O $ROOT ]]; then
    chown -R --no-dereference --reference="$ROOT" "$VENV" "$ROOT"/*.egg-info
  fi
}

# Quicker, and nothing else: without a compiler the run goes on, and `fabriclab doctor` tells.
_native() {
  "$VENV/bin/fabriclab" native build || echo 'not compiled; runs are interpreted'
}

# Where the environment belongs: .venv in the checkout if that is ours to write, else a folder in the user's cache.
_place() {
  local here=$ROOT/.venv
  if [[ -n ${FABRICLAB_VENV:-} ]]; then
    printf '%s' "$FABRICLAB_VENV"
  elif [[ -w $ROOT && (! -e $here || (-w $here && (-O $here || $EUID == 0))) ]] && ! _foreign "$here"; then
    printf '%s' "$here"
  else
    printf '%s/venv-%s' "$(_cache)" "$(_key)"
  fi
}

# Whether it is somebody's own environment, with another interpreter that works.
_foreign() {
  [[ ! -e $1/.fabriclab && -x $1/bin/python && ! $1/bin/python -ef $PYTHON ]] && "$1/bin/python" -c ''
}

_make_venv() {
  if [[ $VENV/bin/python -ef $PYTHON ]] && "$VENV/bin/python" -m pip --version; then return; fi
  mkdir -p "$VENV" && : >"$VENV/.fabriclab" && "$PYTHON" -I -m venv --clear "$VENV" && : >"$VENV/.fabriclab"
}

_make_package() {
  local entry
  if [[ $1 != "$ROOT" ]]; then
    # The checkout may be somebody else's, and pip writes beside pyproject.toml: give it a folder of links to the checkout.
    rm -rf "$1" && mkdir -p "$1" || return
    for entry in "$ROOT"/*; do
      case ${entry##*/} in *.egg-info | build | dist | runs | site) continue ;; esac
      ln -s "$entry" "$1/" || return
    done
  fi
  PIP_USER=0 "$VENV/bin/python" -m pip install --no-input --disable-pip-version-check --progress-bar off \
    --editable "$1[native${EXTRAS:+,$EXTRAS}]"
}
