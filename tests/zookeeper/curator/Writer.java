import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;

/** Writes with Curator until it is killed, and prints the number of each acknowledged write. Argument: the connection string. */
class Writer {
    public static void main(String[] arguments) throws Exception {
        // The defaults of an application: also the EnsembleTracker, which reads /zookeeper/config.
        var client = CuratorFrameworkFactory.newClient(arguments[0], 10_000, 5_000, new RetryForever(200));
        client.start();
        for (long number = 0;; number++) {
            client.create().orSetData().creatingParentsIfNeeded().forPath("/curator/" + number);
            System.out.println("written " + number);
            Thread.sleep(50);
        }
    }
}
