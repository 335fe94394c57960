#!/bin/bash
# fixture.sh up|reset   - builds the throw-away fixture below $FX; the harness starts and ends its two processes
# FX_UID owns everything (who runs this, if not given), OWNER the workspace (FX_UID, if not given).
set -u
HERE=$(cd "$(dirname "$0")" && pwd); FX=${FX:?}; HX=${FX%/*}/host; FX_UID=${FX_UID:-$(id -u)}; OWNER=${OWNER:-$FX_UID}
T=$HX/template
case $1 in
up)
  mkdir -p $FX/{ws,run} $HX/state $T || exit 1
  C=SECFX-CANARY-$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n'); echo $C > $HX/state/canary
  mkdir -p $T/{secrets,outside/dir,outside/pp,home/.ssh,home/.aws,ws/src,ws/sub,ws/.dotfiles}
  ln -s $FX/ws/.dotfiles $T/home/.synapse   # settings that a person keeps among the files of a project
  printf -- '-----BEGIN FAKE KEY-----\n%s\n-----END FAKE KEY-----\n' $C > $T/secrets/id_rsa
  echo "TOKEN=$C" > $T/secrets/.env; echo "aws_secret_access_key=$C" > $T/home/.aws/credentials
  cp $T/secrets/id_rsa $T/home/.ssh/id_rsa; echo "machine x login y password $C" > $T/home/.netrc
  echo "export TOKEN=$C" > $T/home/.bash_history; echo '# original' > $T/home/.bashrc
  printf '[user]\n\tname=x\n[http]\n\textraHeader = Authorization: %s\n' $C > $T/home/.gitconfig
  echo ORIGINAL > $T/outside/victim.txt; echo ORIGINAL > $T/outside/hl_target.txt; echo ORIGINAL > $T/outside/dir/f
  printf '#!/bin/sh\necho host-script\n' > $T/outside/script.sh; chmod 755 $T/outside/script.sh
  echo "print('LEAK host sitecustomize executed')" > $T/outside/pp/sitecustomize.py
  cp $HERE/sx.py $T/ws/sx.py; echo '# demo' > $T/ws/README.md; echo 'print("hi")' > $T/ws/src/main.py
  echo "API_TOKEN=$C" > $T/ws/.env; echo data > $T/ws/sub/a.txt
  ( export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1   # nobody's template directory, signing or hooks
    cd $T/ws && git init -q -b main . && printf '.env\nsx.py\n.svc.sock\n' > .gitignore && git add .gitignore README.md src sub \
    && git -c user.name=t -c user.email=t@t commit -qm init && mkdir -p .git/hooks \
    && printf '#!/bin/sh\nexit 0\n' > .git/hooks/pre-push && chmod 755 .git/hooks/pre-push ) || exit 1   # a person's own hook
  ln -s ../secrets/id_rsa $T/ws/link_secret; ln -s $FX/outside $T/ws/link_outside; ln -s / $T/ws/link_root
  ln -s $FX/outside/victim.txt $T/ws/link_victim
  : > $HX/state/hits.log; : > $HX/state/signals.log
  chmod 755 $FX $FX/run $T $T/ws $T/outside; chmod 700 $HX $T/secrets $T/home/.ssh
  [ -n "${SECRETS_OPEN:-}" ] && chmod -R a+rX $T/secrets $T/home
  if [ $(id -u) = 0 ]; then chown -hR $FX_UID:$FX_UID $FX $HX && chown -hR $OWNER:$OWNER $T/ws || exit 1; fi
  exec bash "$0" reset ;;
reset)   # everything back to the template, owners and modes included; keeps ws/.svc.sock (bound by services.py)
  rm -rf $FX/secrets $FX/outside $FX/home && find $FX/ws -mindepth 1 -maxdepth 1 ! -name .svc.sock -exec rm -rf {} + \
    && cp -a $T/. $FX/ && ln -f $FX/outside/hl_target.txt $FX/ws/planted_hl && rm -f $HX/state/*.during || exit 1
  : > $HX/state/hits.log; : > $HX/state/signals.log ;;
*) echo "usage: fixture.sh up|reset" >&2; exit 2 ;;
esac
