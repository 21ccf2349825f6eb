// Changes a database of bbolt that no process uses.
//
// usage: bbolt grow FILE BYTES
//
//	bbolt put FILE COUNT
//	bbolt compact -o NEW FILE
//
// grow puts a value of BYTES into the database and takes it out again, which frees its pages.
// put makes COUNT transactions, each with one key. compact is the command of that name of bbolt's own program.
package main

import (
	"log"
	"os"
	"strconv"

	bolt "go.etcd.io/bbolt"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func open(path string) *bolt.DB {
	db, err := bolt.Open(path, 0o600, nil)
	must(err)
	return db
}

func main() {
	if os.Args[1] == "compact" {
		from, to := open(os.Args[4]), open(os.Args[3])
		must(bolt.Compact(to, from, 1<<20))
		must(to.Close())
		must(from.Close())
		return
	}
	db := open(os.Args[2])
	number, err := strconv.Atoi(os.Args[3])
	must(err)
	if os.Args[1] == "grow" {
		grow(db, number)
	} else {
		put(db, number)
	}
	must(db.Close())
}

func put(db *bolt.DB, count int) {
	name := []byte("put")
	for ; count > 0; count-- {
		must(db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists(name)
			must(err)
			return bucket.Put(name, name)
		}))
	}
}

func grow(db *bolt.DB, bytes int) {
	name := []byte("grown")
	must(db.Update(func(tx *bolt.Tx) error {
		bucket, err := tx.CreateBucket(name)
		must(err)
		return bucket.Put(name, make([]byte, bytes))
	}))
	must(db.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket(name) }))
}
