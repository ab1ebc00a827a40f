// A JVM: its own signals for null pointers and stopping, many threads, children, and the driver through a native method.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

class Tour {
    static native int linked();

    static int[] nothing;

    public static void main(String[] words) throws Exception {
        boolean mapped = Files.readString(Path.of("/proc/self/maps")).contains("/libsoftmig.so");
        System.out.println("libsoftmig: " + (mapped ? "mapped" : "not mapped"));
        nullPointers();
        threads();
        child();
        // Java's own output and that of the native method are two buffers.
        System.out.flush();
        System.load("/opt/programs/libtour.so");
        int result = linked();
        nullPointers();
        System.gc();
        System.out.println("native method: " + result);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("shutdown hook")));
        // The JVM's own handler of SIGTERM runs the hook.
        new ProcessBuilder("kill", "-TERM", Long.toString(ProcessHandle.current().pid())).start();
        Thread.sleep(30_000);
        System.out.println("still there");
    }

    // Compiled code does not test for null: it takes the signal.
    static void nullPointers() {
        int caught = 0;
        for (int i = 0; i < 20_000; i++) {
            try {
                nothing[i]++;
            } catch (NullPointerException expected) {
                caught++;
            }
        }
        System.out.println("null pointers: " + caught);
    }

    static void threads() throws InterruptedException {
        AtomicLong sum = new AtomicLong();
        ExecutorService pool = Executors.newFixedThreadPool(16);
        for (int i = 0; i < 1000; i++) {
            int each = i;
            pool.execute(() -> sum.addAndGet(each));
        }
        pool.shutdown();
        pool.awaitTermination(30, TimeUnit.SECONDS);
        System.out.println("threads: " + sum);
    }

    static void child() throws IOException, InterruptedException {
        Process process = new ProcessBuilder("/opt/programs/maps").redirectErrorStream(true).start();
        try (BufferedReader said = new BufferedReader(new InputStreamReader(process.getInputStream()))) {
            said.lines().forEach(System.out::println);
        }
        System.out.println("child: " + process.waitFor());
    }
}
