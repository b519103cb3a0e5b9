# A database in a mounted file: transactions, a roll-back, growth, vacuum.
source /run/repo/tests/kernel/lib.sh
mount_nfs /mnt/nfs
database=/mnt/nfs/test.sqlite

step "create and fill"
sqlite3 "$database" <<'SQL'
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT NOT NULL, body BLOB);
CREATE INDEX by_name ON item(name);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO item SELECT i, 'name-' || (i * 7919 % 20000), zeroblob(i % 300) FROM n;
COMMIT;
BEGIN;
DELETE FROM item;
ROLLBACK;
SQL
same "$(sqlite3 "$database" 'SELECT count(*) FROM item')" 20000 "rows after a roll-back"

step "one hundred small transactions"
for i in $(seq 100); do echo "UPDATE item SET name = 'changed-$i' WHERE id = $i;"; done | sqlite3 "$database"

step "delete half, vacuum"
sqlite3 "$database" 'DELETE FROM item WHERE id % 2; VACUUM;'
remount /mnt/nfs
same "$(sqlite3 "$database" 'PRAGMA integrity_check')" ok "integrity check"
same "$(sqlite3 "$database" 'SELECT count(*) FROM item')" 10000 "rows"
same "$(sqlite3 "$database" "SELECT count(*) FROM item WHERE name LIKE 'changed-%'")" 50 "changed rows"
same "$(ls /mnt/nfs)" test.sqlite "no journal is left"
rm "$database"
umount /mnt/nfs
