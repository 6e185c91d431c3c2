# Shared by the scripts of this folder; sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
  bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' dim=$'\e[2m' plain=$'\e[0m'
else
  bold='' green='' red='' dim='' plain=''
fi

# Compiled objects are shared between check-outs in different folders.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

say() { printf '%s==>%s %s\n' "$bold" "$plain" "$*"; }
fail() {
  printf '%serror:%s %s\n' "$red" "$plain" "$*" >&2
  exit 1
}

# Runs a command as root, through sudo where we are somebody else.
as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "'$*' needs root, and there is no sudo here"
  fi
}

build_folder() {
  if [[ $1 == release ]]; then echo "$root/build"; else echo "$root/build-$1"; fi
}

# build PRESET TARGET... : configures and builds the targets (all, if none is
# named) in the folder that the preset names.
build() {
  local preset=$1 folder log
  shift
  folder=$(build_folder "$preset")
  mkdir -p "$folder"
  log=$folder/configure.log
  (cd "$root" && cmake --preset "$preset") >"$log" 2>&1 ||
    { cat "$log" >&2; fail "cmake --preset $preset failed"; }
  cmake --build "$folder" -- "$@"
}

# Seconds as "1m 05s".
took() {
  if (($1 >= 60)); then
    printf '%dm %02ds' $(($1 / 60)) $(($1 % 60))
  else
    printf '%ds' "$1"
  fi
}
