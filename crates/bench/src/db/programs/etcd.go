// Measures puts to an etcd with a single member, one after the other, over its gateway. The
// last word of the output is the time of a put in nanoseconds.
// usage: etcd sync|no-sync DIRECTORY COUNT COMMAND...     COMMAND starts etcd
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// How long etcd may take to answer, and to end.
const timeout = 2 * time.Minute

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// address returns an address on which no process listens.
func address() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

// ask sends a request to the gateway and returns the answer.
func ask(url string, request map[string]any) (map[string]any, error) {
	body, err := json.Marshal(request)
	must(err)
	response, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	var answer map[string]any
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	return answer, err
}

func encoded(text string) string {
	return base64.StdEncoding.EncodeToString([]byte(text))
}

// start starts etcd, which ends with this thread of this program.
func start(words []string) (*exec.Cmd, chan error) {
	runtime.LockOSThread()
	command := exec.Command(words[0], words[1:]...)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	must(command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	return command, ended
}

// stop ends etcd. A failed commit, and a hold that cannot be stopped, have exit code 125.
func stop(command *exec.Cmd, ended chan error) {
	must(command.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		if command.ProcessState.ExitCode() == 125 {
			log.Fatal(err)
		}
	case <-time.After(timeout):
		log.Fatal("etcd does not end")
	}
}

func main() {
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	client, peer := address(), address()
	words := append(os.Args[4:], "--data-dir", os.Args[2], "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer)
	if os.Args[1] == "no-sync" {
		words = append(words, "--unsafe-no-fsync")
		fmt.Println("--unsafe-no-fsync")
	} else {
		fmt.Println("the default options")
	}
	command, ended := start(words)
	ready := func() bool {
		_, err := ask(client+"/v3/kv/range", map[string]any{"key": encoded("key")})
		return err == nil
	}
	for begin := time.Now(); !ready(); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			log.Fatal("etcd ended early: ", err)
		default:
		}
		if time.Since(begin) > timeout {
			log.Fatal("etcd does not answer")
		}
	}
	begin := time.Now()
	for n := 0; n < count; n++ {
		key := encoded(fmt.Sprintf("key-%08d", n))
		_, err := ask(client+"/v3/kv/put", map[string]any{"key": key, "value": encoded("value")})
		must(err)
	}
	elapsed := time.Since(begin)
	// From "key-" to "key.": the next letter after the dash.
	all := map[string]any{"key": encoded("key-"), "range_end": encoded("key."), "count_only": true}
	answer, err := ask(client+"/v3/kv/range", all)
	must(err)
	if found := fmt.Sprint(answer["count"]); found != strconv.Itoa(count) {
		log.Fatalf("%s keys instead of %d", found, count)
	}
	stop(command, ended)
	fmt.Println(float64(elapsed.Nanoseconds()) / float64(count))
}
