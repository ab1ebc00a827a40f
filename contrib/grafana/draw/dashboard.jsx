// A dashboard of Grafana's, with Grafana's own components: its panels in their places, with what Prometheus answers now.
//
// It knows what softmig's dashboards use: tables, stats and time series of Prometheus, the transformations `merge` and
// `organize`, and overrides by name.
import { createRoot } from 'react-dom/client';
import { lastValueFrom } from 'rxjs';

// Not by `import`: these modules have default imports of older ones, which esbuild takes as Node does.
const {
  FieldType, ThemeContext, createDataFrame, createTheme, dateTime, getDisplayProcessor, standardTransformers,
  standardTransformersRegistry, transformDataFrame,
} = require('@grafana/data');
const { BigValue, GlobalStyles, PanelChrome, Table, TimeSeries } = require('@grafana/ui');

// Grafana's own grid: 24 columns, rows of 30 pixels, 8 between panels.
const COLUMNS = 24, ROW = 30, GAP = 8;
const theme = createTheme({ colors: { mode: 'light' } });

const { dashboard, from, to, step, last, variables } = await (await fetch('/settings.json')).json();

standardTransformersRegistry.setInit(() =>
  [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer].map((transformation) => ({
    id: transformation.id, name: transformation.name, transformation: async () => transformation, editor: () => null,
  })),
);

async function ask(kind, parameters) {
  const answer = await (await fetch(`/api/v1/${kind}?${new URLSearchParams(parameters)}`)).json();
  if (answer.status !== 'success') throw new Error(`${parameters.query}: ${answer.error}`);
  return answer.data.result;
}

// As Grafana's data source of Prometheus does: four scrapes, which are a second apart here.
const own = { __rate_interval: `${4 * step}s`, __range: `${to - from}s`, ...variables };
const filled = (text) => text.replace(/\$(?:\{(\w+)\}|(\w+))/g, (all, first, second) => own[first ?? second] ?? all);
const named = (target, labels) => target.legendFormat
  ? target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '')
  : Object.entries(labels).map(([name, value]) => `${name}="${value}"`).join(', ');

// One table for all series of an instant.
async function tableOf(target) {
  const series = await ask('query', { query: filled(target.expr), time: to });
  const names = [...new Set(series.flatMap(({ metric }) => Object.keys(metric)))].filter((name) => name !== '__name__').sort();
  return [createDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: series.map(({ value }) => value[0] * 1000) },
      ...names.map((name) => ({ name, type: FieldType.string, values: series.map(({ metric }) => metric[name] ?? '') })),
      { name: `Value #${target.refId}`, type: FieldType.number, values: series.map(({ value }) => Number(value[1])) },
    ],
  })];
}

// One frame for each series of the time shown, with nothing where there is no sample.
async function seriesOf(target) {
  const series = await ask('query_range', { query: filled(target.expr), start: from, end: to, step });
  const times = Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, at) => (from + at * step) * 1000);
  return series.map(({ metric, values }) => {
    const known = new Map(values.map(([time, value]) => [Math.round(time * 1000), Number(value)]));
    return createDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: times },
        {
          name: 'Value', type: FieldType.number, labels: metric, values: times.map((time) => known.get(time) ?? null),
          config: { displayNameFromDS: named(target, metric) },
        },
      ],
    });
  });
}

// Gives each field what the panel says of all fields and of those of its name.
function configure(frame, { defaults = {}, overrides = [] } = {}, colours) {
  const fields = frame.fields.map((field) => {
    const mine = overrides.filter(({ matcher }) => matcher.id === 'byName' && matcher.options === field.name);
    const given = Object.fromEntries(mine.flatMap(({ properties }) => properties).map(({ id, value }) => [id, value]));
    const is_value = field.type === FieldType.number;
    const config = { ...field.config, ...(is_value ? { ...defaults, color: { mode: 'palette-classic' } } : {}), ...given };
    config.custom = { drawStyle: 'line', showPoints: 'never', axisPlacement: 'auto', ...defaults.custom };
    if (given['custom.width']) config.custom.width = given['custom.width'];
    const state = { seriesIndex: is_value ? colours.next++ : 0, displayName: config.displayName ?? config.displayNameFromDS };
    const whole = { ...field, config, state };
    return { ...whole, display: getDisplayProcessor({ field: whole, theme }) };
  });
  return { ...frame, fields };
}

async function framesOf(panel) {
  const ask_target = (target) => (target.format === 'table' && target.instant ? tableOf(target) : seriesOf(target));
  const frames = (await Promise.all(panel.targets.map(ask_target))).flat();
  const transformed = await lastValueFrom(transformDataFrame(panel.transformations ?? [], frames));
  const colours = { next: 0 };
  return transformed.map((frame) => configure(frame, panel.fieldConfig, colours));
}

function Content({ panel, frames, width, height }) {
  if (!frames.some((frame) => frame.length)) return <div style={{ padding: 8 }}>No data</div>;
  if (panel.type === 'table') return <Table data={frames[0]} width={width} height={height} />;
  if (panel.type === 'stat') {
    const field = frames[0].fields.find(({ type }) => type === FieldType.number);
    const last = field.values.filter((value) => value !== null).at(-1);
    return <BigValue value={field.display(last)} width={width} height={height} theme={theme} />;
  }
  const timeRange = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: '', to: '' } };
  const legend = { showLegend: true, calcs: [], ...panel.options.legend, ...(last && { calcs: ['lastNotNull'] }) };
  return <TimeSeries frames={frames} timeRange={timeRange} timeZone="utc" width={width} height={height} legend={legend} options={{}} />;
}

function Dashboard({ panels }) {
  const column = (document.body.clientWidth - GAP) / COLUMNS;
  return panels.map(({ panel, frames }) => {
    const { x, y, w, h } = panel.gridPos;
    const [width, height] = [w * column - GAP, h * (ROW + GAP) - GAP];
    return (
      <div key={panel.id} data-panel={panel.id} style={{ position: 'absolute', left: GAP + x * column, top: GAP + y * (ROW + GAP) }}>
        <PanelChrome title={panel.title} width={width} height={height}>
          {(innerWidth, innerHeight) => <Content panel={panel} frames={frames} width={innerWidth} height={innerHeight} />}
        </PanelChrome>
      </div>
    );
  });
}

const panels = await Promise.all(dashboard.panels.map(async (panel) => ({ panel, frames: await framesOf(panel) })));
document.body.style = `margin: 0; position: relative; background: ${theme.colors.background.canvas}; color: ${theme.colors.text.primary};`
  + `font: ${theme.typography.fontSize}px sans-serif; height: ${Math.max(...panels.map(({ panel: { gridPos } }) => gridPos.y + gridPos.h)) * (ROW + GAP) + GAP}px`;
createRoot(document.body.appendChild(document.createElement('div'))).render(
  <ThemeContext.Provider value={theme}><GlobalStyles /><Dashboard panels={panels} /></ThemeContext.Provider>,
);
