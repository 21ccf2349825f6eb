// Opens, writes and syncs files in many goroutines, while others spin so that
// the runtime preempts them by SIGURG.
package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	goroutines = 50
	rounds     = 20
)

func round(name string) error {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND|os.O_SYNC, 0o644)
	if err != nil {
		return err
	}
	if _, err = file.WriteString("."); err == nil {
		err = file.Sync()
	}
	if failed := file.Close(); err == nil {
		err = failed
	}
	return err
}

func main() {
	var done atomic.Bool
	var good atomic.Int64
	var group, spinners sync.WaitGroup
	for i := 0; i < 2; i++ {
		spinners.Add(1)
		go func() {
			defer spinners.Done()
			for !done.Load() {
			}
		}()
	}
	for number := 0; number < goroutines; number++ {
		group.Add(1)
		go func(name string) {
			defer group.Done()
			for i := 0; i < rounds; i++ {
				if err := round(name); err != nil {
					fmt.Println(err)
					return
				}
				good.Add(1)
			}
		}(fmt.Sprint(number))
	}
	group.Wait()
	done.Store(true)
	spinners.Wait()
	syscall.Sync()
	var size int64
	for number := 0; number < goroutines; number++ {
		if meta, err := os.Stat(fmt.Sprint(number)); err == nil {
			size += meta.Size()
		}
	}
	fmt.Printf("%d rounds, %d bytes\n", good.Load(), size)
}
