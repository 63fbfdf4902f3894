import java.net.InetSocketAddress;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf.ConfVars;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * A Hive metastore on a Derby database in memory: `java -cp JARS Metastore.java PORT WAREHOUSE`. Ends with its process.
 *
 * <p>Not Hive's own main: that listens on every address; and the tables of locks come from scripts that no jar holds, or from
 * `TxnDbUtil`, which only test mode calls, and test mode refuses the locks of Java Paimon.
 */
public class Metastore {

    public static void main(String[] arguments) throws Exception {
        Configuration conf = MetastoreConf.newMetastoreConf();
        MetastoreConf.setVar(conf, ConfVars.CONNECT_URL_KEY, "jdbc:derby:memory:metastore;create=true");
        MetastoreConf.setBoolVar(conf, ConfVars.AUTO_CREATE_ALL, true);
        MetastoreConf.setBoolVar(conf, ConfVars.SCHEMA_VERIFICATION, false);
        MetastoreConf.setVar(conf, ConfVars.WAREHOUSE, arguments[1]);
        // The default parses conditions with Hive's query engine, which nothing here asks for.
        MetastoreConf.setVar(
                conf,
                ConfVars.EXPRESSION_PROXY_CLASS,
                "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy");
        TxnDbUtil.prepDb(conf);
        IHMSHandler handler =
                RetryingHMSHandler.getProxy(conf, new HiveMetaStore.HMSHandler("tests", conf, false), false);
        TServerSocket loopback = new TServerSocket(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        new TThreadPoolServer(
                        new TThreadPoolServer.Args(loopback)
                                .processor(new TSetIpAddressProcessor<IHMSHandler>(handler)))
                .serve();
    }
}
