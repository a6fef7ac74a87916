/** Version of Belfry, from `package.json`, the only place that states it. */
import manifest from '../../package.json' with {type: 'json'}

export const VERSION: string = manifest.version
