/* busy fsync|open: eight threads do the call until the file `stop` exists. After each call they append a
 * byte to the file `done`. Ends with 9. The threads take no lock, so they wait for their calls alone. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int opens;

static int need(int result)
{
	if (result < 0) {
		perror("busy");
		_exit(1);
	}
	return result;
}

static void *work(void *name)
{
	int done = need(open("done", O_WRONLY | O_CREAT | O_APPEND, 0644));
	int file = need(open(name, O_WRONLY | O_CREAT, 0644));
	while (access("stop", F_OK) != 0) {
		if (opens)
			need(close(need(open(name, O_WRONLY | O_SYNC))));
		else
			need(fsync(file));
		need(write(done, ".", 1));
	}
	return NULL;
}

int main(int count, char **words)
{
	static char names[8][8];
	pthread_t threads[8];
	opens = count > 1 && strcmp(words[1], "open") == 0;
	for (int n = 0; n < 8; n++) {
		snprintf(names[n], sizeof names[n], "file%d", n);
		need(-pthread_create(&threads[n], NULL, work, names[n]));
	}
	for (int n = 0; n < 8; n++)
		need(-pthread_join(threads[n], NULL));
	return 9;
}
