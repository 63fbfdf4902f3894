import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A real name node and a real data node on this machine: java -cp JARS MiniHdfs.java PORT FOLDER. Runs until it is killed. */
public class MiniHdfs {
    public static void main(String[] args) throws Exception {
        File folder = new File(args[1]);
        Configuration settings = new Configuration();
        settings.set("dfs.permissions.enabled", "true");
        settings.set("dfs.namenode.fs-limits.min-block-size", "0");
        MiniDFSCluster cluster =
                new MiniDFSCluster.Builder(settings, folder)
                        .nameNodePort(Integer.parseInt(args[0]))
                        .numDataNodes(1)
                        .format(true)
                        .build();
        cluster.waitActive();
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
