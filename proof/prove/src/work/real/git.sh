# Clones over the protocol, commits and packs. git syncs everything that it can sync.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_CONFIG_COUNT=2
export GIT_CONFIG_KEY_0=core.fsync GIT_CONFIG_VALUE_0=all
export GIT_CONFIG_KEY_1=gc.autoDetach GIT_CONFIG_VALUE_1=false
git clone -q --no-local "$1/source" clone
cd clone
git config user.name prover
git config user.email prover@example.invalid
for round in 1 2 3; do
	for file in d1/* d"$round"/*; do echo "again $round" >>"$file"; done
	git commit -q -a -m "again $round"
done
git branch old HEAD~4
git gc -q --prune=now
git fsck --no-progress
