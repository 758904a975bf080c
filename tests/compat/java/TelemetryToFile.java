import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.io.opentelemetry.proto.common.v1.KeyValue;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.Metric;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.NumberDataPoint;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.ResourceMetrics;

/** A broker's plugin that writes what clients push (KIP-714) to a file: one line for each metric of each push. */
public class TelemetryToFile implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private Path file;

    @Override
    public void configure(Map<String, ?> configs) {
        file = Path.of(String.valueOf(configs.get("telemetry.file")));
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public synchronized void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        StringBuilder lines = new StringBuilder();
        try {
            for (ResourceMetrics resource : MetricsData.parseFrom(payload.data()).getResourceMetricsList()) {
                StringBuilder labels = new StringBuilder();
                for (KeyValue each : resource.getResource().getAttributesList()) {
                    labels.append(each.getKey()).append('=').append(each.getValue().getStringValue());
                }
                for (Metric metric : resource.getScopeMetrics(0).getMetricsList()) {
                    boolean isSum = metric.hasSum();
                    NumberDataPoint point = isSum ? metric.getSum().getDataPoints(0) : metric.getGauge().getDataPoints(0);
                    lines.append(String.join(" ", payload.clientInstanceId().toString(), context.clientId(),
                        payload.isTerminating() ? "last" : "more", labels, metric.getName(),
                        isSum ? "sum" : "gauge", String.valueOf(point.getAsDouble()))).append('\n');
                }
            }
            Files.writeString(file, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) { }

    @Override
    public void metricChange(KafkaMetric metric) { }

    @Override
    public void metricRemoval(KafkaMetric metric) { }

    @Override
    public void close() { }
}
