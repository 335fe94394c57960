"""Programs of which something is known, and those that an unknown one is taken to run if it is given their name."""

from typing import Final

from ringfence.shell.catalog.base import names as _set
from ringfence.shell.catalog.interpreters import INTERPRETERS, LOADERS, SHELLS
from ringfence.shell.catalog.places import TEXT_COMMANDS
from ringfence.shell.catalog.runs import CONTAINERS
from ringfence.shell.catalog.wrappers import WRAPPERS

ORDINARY: Final = _set(
    # Their arguments are names, files and settings of their own; none of them is a program to run.
    "cat tac nl od xxd hexdump strings wc cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum"
    " sum head tail less more view cut paste join comm sort uniq tr rev fold fmt expand unexpand column pr stat"
    " file ls dir vdir du df tree diff cmp sdiff diff3 colordiff base64 base32 zcat bzcat xzcat zless gunzip"
    " gzip bzip2 bunzip2 xz unxz zstd unzstd lz4 readlink realpath getfacl lsattr bat batcat exa eza mapfile"
    " readarray source . shuf csplit split xmllint pdftotext iconv dos2unix unix2dos grep egrep fgrep zgrep"
    " rgrep rg ag ack pcregrep ugrep sed gsed jq yq tar unzip zip 7z 7za rar unrar openssl tee touch mkdir"
    " mkfifo mknod mktemp truncate fallocate cp install scp rsync mv ln rm unlink shred srm rmdir trash trash-"
    " put chmod chown chgrp setfacl chattr patch curl wget ping dig host nslookup nc ncat netcat telnet"
    " traceroute whois ssh sftp dd find fd locate date cal bc printenv tput stty tty git hg svn bzr jj gh glab"
    " hub tig lazygit git-lfs pre-commit commitlint npm yarn pnpm bun npx corepack nvm node-gyp tsc eslint"
    " prettier jest vitest mocha ava karma cypress playwright webpack vite rollup esbuild swc parcel next nuxt"
    " ng vue nx turbo lerna storybook stylelint pip pip3 pipx uv uvx poetry pdm hatch flit twine virtualenv"
    " conda mamba pyenv pytest tox nox ruff black mypy pyright flake8 isort pylint bandit coverage sphinx-build"
    " mkdocs jupyter ipython django-admin flask uvicorn gunicorn celery alembic cython maturin pip-compile pip-"
    " audit safety pydoc pydoc3 2to3 cargo rustc rustup rustfmt clippy-driver go gofmt golangci-lint javac java"
    " jar mvn mvnw gradle gradlew ant sbt kotlinc scalac dotnet nuget msbuild swift swiftc xcodebuild pod"
    " fastlane flutter dart gem bundle bundler rake rails rspec rubocop composer phpunit artisan mix rebar3"
    " stack cabal ghc opam dune zig nim crystal gcc g++ cc c++ clang clang++ clang-format clang-tidy ld ar nm"
    " objdump objcopy readelf strip ranlib size addr2line cmake ctest cpack ninja meson bazel buck make gmake"
    " autoconf automake autoreconf configure pkg-config libtoolize cppcheck lcov gcov valgrind-ms_print ldd"
    " docker docker-compose podman buildah skopeo nerdctl kubectl helm kustomize minikube kind k3d k9s oc"
    " terraform tofu terragrunt pulumi packer vagrant ansible ansible-playbook aws gcloud gsutil az doctl"
    " flyctl heroku vercel netlify wrangler serverless sam cdk eksctl argocd flux apt apt-get apt-cache apt-"
    " mark aptitude dpkg dpkg-query yum dnf rpm apk pacman zypper brew port snap flatpak nix-env emerge pkg"
    " opkg psql mysql mariadb sqlite3 redis-cli mongosh mongo createdb dropdb pg_dump pg_restore mysqldump"
    " pg_isready redis-server postgres mysqld mongod etcdctl kafka-topics.sh rabbitmqctl systemctl service"
    " journalctl loginctl crontab at lsof ss netstat ip ifconfig route lsmod lspci lsusb dmesg vmstat iostat"
    " sar htop btop ncdu who w last users finger passwd useradd usermod groupadd chsh mount umount fdisk lsblk"
    " blkid mkfs fsck swapon swapoff hostnamectl timedatectl vi vim nvim nano emacs ed ex code subl open xdg-"
    " open pbcopy pbpaste xclip xsel wl-copy convert magick identify mogrify ffmpeg ffprobe sox pandoc pdflatex"
    " latexmk inkscape gs dot plantuml mermaid mmdc shellcheck shfmt hadolint actionlint yamllint markdownlint"
    " vale codespell typos tokei cloc scc gpg gpg2 ssh-keygen ssh-add ssh-keyscan age sops pass keytool"
    " certutil tmux screen watch parallel xargs env sudo su doas command builtin exec eval nohup hash enable"
    " history fc bind complete compgen suspend caller dirs popd pushd pwd test [ true false protoc buf grpcurl"
    " thrift swagger openapi-generator hugo jekyll zola gatsby ctags cscope ripgrep-all entr act direnv just"
    " task mage shutdown reboot halt poweroff init telinit iptables nft ufw modprobe insmod sysctl killall"
    " pkill kill look ul ptx tsort seq factor numfmt cowsay fortune lolcat figlet"
)
LIBRARY_TOOLS: Final = _set(
    # Build, look at, pack or send libraries, and do not load what they are given.
    "ldd nm objdump objcopy readelf strip ar ranlib size addr2line patchelf chrpath eu-readelf eu-strip eu-nm dwarfdump"
    " c++filt lipo otool install_name_tool abidiff abidw bloaty checksec auditwheel delocate-wheel twine llvm-nm"
    " llvm-objdump llvm-strip sha256sum md5sum dd find fd locate git git-lfs hg svn docker podman kubectl adb aws"
    " gsutil gcloud az sftp rsync zip 7z 7za gzip bzip2 xz zstd lz4 gpg codesign signtool upx apt apt-get dpkg rpm dnf"
    " yum brew apk pacman clang-tidy cppcheck swig cython cargo ninja make gmake cmake meson bazel gradle mvn npm yarn"
    " pnpm pip pip3 uv echo printf test [ rm man g++ gfortran clang clang++ rustc swiftc nvcc hipcc zig ld.lld"
    " ld.gold lld mold"
)
"""Everything else that is given a library by its path is taken to load it."""
SUSPECTS: Final = SHELLS | _set(
    "sudo su doas pkexec runuser rm dd shred mkfs shutdown reboot poweroff halt python python3 perl ruby node php curl"
    " wget nc ncat socat env nohup xargs eval exec chmod chown crontab systemctl iptables mount insmod modprobe"
)


def is_followed(name: str) -> bool:
    """Whether it is known that a program runs none of its words, or which of them."""
    return (
        name in ORDINARY
        or name in TEXT_COMMANDS
        or name in WRAPPERS
        or name in SHELLS
        or name in CONTAINERS
        or name.rstrip("0123456789.") in INTERPRETERS
        or name.startswith(LOADERS)
    )
